// Runs that save checkpoints, and their directories compared byte for byte.
#pragma once

#include <string>
#include <vector>

#include "e2e/process.h"
#include "e2e/run_files.h"

namespace stft::test {

// A run of a recipe file; `settings` are values of --set.
struct TrainCall {
  std::string output_dir;
  int ranks = 1;
  std::vector<std::string> settings = {};
  std::vector<std::string> flags = {};  // as --resume auto
  std::string recipe = "configs/tiny.yaml";
};

Outcome try_train(const TrainCall& call);
Outcome train(const TrainCall& call);  // requires exit code 0

// Requires exit code 0; returns the standard output.
std::string succeed(const std::vector<std::string>& arguments);

// Checks for exit code 2, a message with all of `expected`, no result, and no word of an internal error.
void check_refused(const std::vector<std::string>& arguments, const std::vector<std::string>& expected);

void copy_tree(const std::string& from, const std::string& to);

// Paths of the files that only one of two directories has, or that differ; empty: they are equal.
std::vector<std::string> tree_differences(const std::string& a, const std::string& b);

// The names of the run's checkpoints, by step.
std::vector<std::string> checkpoints_of(const std::string& run_directory);

// The path of the checkpoint that best.json names.
std::string best_of(const std::string& run_directory);

// What the log says of the evaluation at a step (the last one, when the best was reloaded there).
Json logged_metrics(const std::string& run_directory, int step);

// Whether two objects of metrics have the same names and values within 1e-6.
bool are_close(const Json& a, const Json& b);

// Changes one byte in the middle of a file.
void flip_byte(const std::string& path);

}  // namespace stft::test
