#include "e2e/run_files.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>

#include "io/safetensors.h"

namespace stft::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool agree(const io::TensorInfo& a, const io::TensorInfo* b) {
  return b != nullptr && a.dtype == b->dtype && a.shape == b->shape;
}

std::vector<float> floats(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

}  // namespace

std::string source_path(const std::string& relative) {
  return std::string(STFT_SOURCE_DIR) + "/" + relative;
}

Json small_recipe(const TemporaryDirectory& directory) {
  Json recipe;
  recipe["run"] = {{"output_dir", directory.path("run")}};
  recipe["model"] = {{"name_or_path", source_path("test/golden/tiny_bert")}};
  recipe["data"]["train"] = Json::array({{{"name", "pairs"},
                                          {"path", source_path("test/golden/data/pairs.jsonl")},
                                          {"columns", {{"anchor", "anchor"}, {"positive", "positive"}}},
                                          {"limit", 50}}});
  recipe["loss"] = {{"type", "MultipleNegativesRankingLoss"}};
  recipe["train"] = {{"max_steps", 3},        {"global_batch_size", 12}, {"optim", "sgd"},
                     {"learning_rate", 0.05}, {"logging_steps", 1},      {"lr_scheduler_type", "constant"},
                     {"eval_strategy", "no"}};
  recipe["launch"] = {{"threads_per_rank", 1}};
  return recipe;
}

Json beir_evaluator() {
  return {{"type", "InformationRetrievalEvaluator"},
          {"name", "beir"},
          {"queries", {{"path", source_path("test/golden/data/beir/queries.jsonl")}}},
          {"corpus", {{"path", source_path("test/golden/data/beir/corpus.jsonl")}}},
          {"qrels", {{"path", source_path("test/golden/data/beir/qrels/test.tsv")}}}};
}

Json with_rows(Json recipe, const TemporaryDirectory& directory, const std::string& lines) {
  recipe["data"]["train"][0]["path"] = directory.write("rows.jsonl", lines);
  return recipe;
}

std::string write_recipe(const TemporaryDirectory& directory, const Json& recipe) {
  return directory.write("recipe.json", recipe.dump(2));
}

RunLog read_log(const std::string& run_directory) {
  RunLog log;
  std::ifstream stream(run_directory + "/log.jsonl");
  for (std::string line; std::getline(stream, line);) {
    Json event = Json::parse(line);
    const std::string kind = event.at("event");
    if (kind == "start") {
      log.starts.push_back(std::move(event));
    } else if (kind == "step") {
      log.steps.push_back(std::move(event));
    } else if (kind == "eval") {
      log.evals.push_back(std::move(event));
    } else if (kind == "save") {
      log.saves.push_back(std::move(event));
    } else if (kind == "stop") {
      log.stops.push_back(std::move(event));
    } else if (kind == "skip") {
      log.skips.push_back(std::move(event));
    } else if (kind == "collectives") {
      log.collectives.push_back(std::move(event));
    } else if (kind == "end") {
      log.ends.push_back(std::move(event));
    } else {
      throw std::runtime_error("log.jsonl: unexpected event " + kind);
    }
  }
  return log;
}

Json read_json(const std::string& path) {
  return Json::parse(read_bytes(path));
}

std::string read_bytes(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    throw std::runtime_error("cannot read " + path);
  }
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<double> numbers(const std::vector<Json>& events, const std::string& key) {
  std::vector<double> values;
  for (const Json& event : events) {
    values.push_back(event.at(key).get<double>());
  }
  return values;
}

double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) {
    return kInfinity;
  }
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (!std::isfinite(difference)) {
      return kInfinity;
    }
    largest = std::max(largest, difference == 0 ? 0 : difference / std::max(std::abs(a[i]), std::abs(b[i])));
  }
  return largest;
}

double weight_difference(const std::string& path_a, const std::string& path_b) {
  const auto a = io::SafetensorsFile::open(path_a);
  const auto b = io::SafetensorsFile::open(path_b);
  if (a.tensors().size() != b.tensors().size()) {
    return kInfinity;
  }
  double largest = 0;
  for (const io::TensorInfo& tensor : a.tensors()) {
    const io::TensorInfo* other = b.find(tensor.name);
    if (!agree(tensor, other)) {
      return kInfinity;
    }
    if (tensor.dtype != io::Dtype::kF32) {
      continue;
    }
    const std::vector<float> x = floats(a.bytes(tensor));
    const std::vector<float> y = floats(b.bytes(*other));
    for (size_t i = 0; i < x.size(); ++i) {
      const double difference = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
      largest = std::isfinite(difference) ? std::max(largest, difference) : kInfinity;
    }
  }
  return largest;
}

bool holds_same_tensors(const std::string& path_a, const std::string& path_b) {
  const auto a = io::SafetensorsFile::open(path_a);
  const auto b = io::SafetensorsFile::open(path_b);
  return a.tensors().size() == b.tensors().size() &&
         std::all_of(a.tensors().begin(), a.tensors().end(), [&](const io::TensorInfo& tensor) {
           const io::TensorInfo* other = b.find(tensor.name);
           if (!agree(tensor, other)) {
             return false;
           }
           const auto x = a.bytes(tensor);
           const auto y = b.bytes(*other);
           return std::equal(x.begin(), x.end(), y.begin(), y.end());
         });
}

}  // namespace stft::test
