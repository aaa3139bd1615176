// Recipes that tests write, and what a run leaves.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "io/temporary_directory.h"

namespace stft::test {

using Json = nlohmann::json;

// A file of the repository.
std::string source_path(const std::string& relative);

// A small run as a JSON recipe (JSON is YAML): the two-layer model of test/golden/tiny_bert on 50 pairs, plain SGD,
// every step logged, no evaluation, one thread a rank, output in the directory's run/.
Json small_recipe(const TemporaryDirectory& directory);

// The retrieval evaluator of 60 queries and 300 documents, named "beir".
Json beir_evaluator();

// The recipe with the data set's file replaced by `lines`, written into the directory as rows.jsonl.
Json with_rows(Json recipe, const TemporaryDirectory& directory, const std::string& lines);

// Writes the recipe as recipe.json; returns its path.
std::string write_recipe(const TemporaryDirectory& directory, const Json& recipe);

// The events of a run directory's log.jsonl, by kind, in order.
struct RunLog {
  std::vector<Json> starts;
  std::vector<Json> steps;
  std::vector<Json> evals;
  std::vector<Json> saves;
  std::vector<Json> stops;
  std::vector<Json> skips;
  std::vector<Json> collectives;
  std::vector<Json> ends;
};

RunLog read_log(const std::string& run_directory);
Json read_json(const std::string& path);
std::string read_bytes(const std::string& path);

// One number of each event, in order.
std::vector<double> numbers(const std::vector<Json>& events, const std::string& key);

// The largest relative difference, element by element; infinity when the counts differ or an element is not finite.
double relative_difference(const std::vector<double>& a, const std::vector<double>& b);

// The largest absolute difference between two safetensors files of float32 tensors; infinity when names, types or
// shapes differ or an element is not finite.
double weight_difference(const std::string& path_a, const std::string& path_b);

// Whether the files hold the same tensors: names, types, shapes and bytes, wherever the bytes lie.
bool holds_same_tensors(const std::string& path_a, const std::string& path_b);

}  // namespace stft::test
