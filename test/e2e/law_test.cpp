// The law of the numbers, over processes: the same global batch gives the same run at any number of ranks and under
// either strategy, also when rows do not divide and a rank has none.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "e2e/process.h"
#include "e2e/run_files.h"

namespace stft::test {
namespace {

struct Setting {
  int ranks;
  const char* strategy;
};

const std::vector<Setting> kSettings = {{1, "full_shard"}, {1, "no_shard"},   {2, "full_shard"},
                                        {2, "no_shard"},   {3, "full_shard"}, {3, "no_shard"}};

const std::string kInput = source_path("test/golden/tiny_bert/model.safetensors");

std::string describe(const Setting& setting) {
  return std::to_string(setting.ranks) + " ranks, " + setting.strategy;
}

// Runs the recipe in a directory of its own and returns that directory.
std::string run(const TemporaryDirectory& directory, Json recipe, const Setting& setting) {
  const std::string output = directory.path(std::to_string(setting.ranks) + setting.strategy);
  recipe["run"]["output_dir"] = output;
  recipe["sharding"]["strategy"] = setting.strategy;
  const std::string path = write_recipe(directory, recipe);
  const Outcome outcome = run_stft({"train", path, "--nproc", std::to_string(setting.ranks)});
  INFO(describe(setting) << "\n" << outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return output;
}

// Shuffled epochs of 50 rows in steps of 2 micro-batches of 6 rows: every fifth step is one micro-batch of 2 rows, so
// the third of 3 ranks has none. The scale is 5, since at 20 the last bit of a float32 score is 1e-6 of the loss
// already; the learning rate is small, since a random model multiplies a last bit from step to step.
Json uneven_recipe(const TemporaryDirectory& directory) {
  Json recipe = small_recipe(directory);
  recipe["model"]["dropout"] = 0.1;
  recipe["train"]["gradient_accumulation_steps"] = 2;
  recipe["train"]["max_steps"] = 6;
  recipe["train"]["learning_rate"] = 0.02;
  recipe["loss"]["scale"] = 5;
  recipe["train"]["eval_strategy"] = "steps";
  recipe["train"]["eval_steps"] = 2;
  recipe["train"]["eval_on_start"] = true;
  recipe["evaluators"] = Json::array({beir_evaluator()});
  return recipe;
}

std::vector<double> metric_values(const RunLog& log) {
  std::vector<double> values;
  for (const Json& event : log.evals) {
    values.push_back(event.at("step"));
    for (const auto& metric : event.at("metrics").items()) {
      values.push_back(metric.value());
    }
  }
  return values;
}

void check_same_trace(const RunLog& a, const RunLog& b, double tolerance) {
  CHECK(relative_difference(numbers(a.steps, "loss"), numbers(b.steps, "loss")) <= tolerance);
  CHECK(relative_difference(numbers(a.steps, "grad_norm"), numbers(b.steps, "grad_norm")) <= tolerance);
  CHECK(numbers(a.steps, "learning_rate") == numbers(b.steps, "learning_rate"));
  CHECK(numbers(a.steps, "epoch") == numbers(b.steps, "epoch"));
}

}  // namespace

TEST_CASE("1, 2 and 3 ranks give one run, under either strategy", "[e2e][law]") {
  const TemporaryDirectory directory;
  const Json recipe = uneven_recipe(directory);
  const std::string first = run(directory, recipe, kSettings[0]);
  const RunLog expected = read_log(first);
  REQUIRE(expected.steps.size() == 6);
  REQUIRE(expected.evals.size() == 4);  // steps 0, 2, 4 and 6
  REQUIRE(numbers(expected.steps, "epoch")[4] == 1);
  REQUIRE(weight_difference(kInput, first + "/final/model.safetensors") > 1e-3);  // the weights moved
  for (size_t i = 1; i < kSettings.size(); ++i) {
    INFO(describe(kSettings[i]));
    const std::string output = run(directory, recipe, kSettings[i]);
    const RunLog log = read_log(output);
    check_same_trace(expected, log, 1e-6);
    CHECK(log.starts.at(0).at("parameters_checksum") == expected.starts.at(0).at("parameters_checksum"));
    CHECK(log.starts.at(0).at("candidates_per_anchor") == expected.starts.at(0).at("candidates_per_anchor"));
    CHECK(relative_difference(metric_values(expected), metric_values(log)) <= 1e-6);
    CHECK(weight_difference(first + "/final/model.safetensors", output + "/final/model.safetensors") <= 1e-6);
  }
}

TEST_CASE("the dropout of the law's runs is real, and belongs to the seed", "[e2e][law]") {
  const TemporaryDirectory directory;
  Json recipe = uneven_recipe(directory);
  recipe["train"]["eval_strategy"] = "no";
  const RunLog with = read_log(run(directory, recipe, {1, "full_shard"}));
  recipe["model"]["dropout"] = 0;
  const RunLog without = read_log(run(directory, recipe, {1, "no_shard"}));
  CHECK(relative_difference(numbers(with.steps, "loss"), numbers(without.steps, "loss")) > 1e-3);
  recipe["model"]["dropout"] = 0.1;
  recipe["train"]["shuffle"] = false;
  const RunLog in_file_order = read_log(run(directory, recipe, {2, "full_shard"}));
  recipe["run"]["seed"] = 43;
  const RunLog another_seed = read_log(run(directory, recipe, {2, "no_shard"}));
  CHECK(relative_difference(numbers(in_file_order.steps, "loss"), numbers(another_seed.steps, "loss")) > 1e-3);
}

TEST_CASE("hard negatives, clipping and every pooling obey the law", "[e2e][law]") {
  const TemporaryDirectory directory;
  Json recipe = uneven_recipe(directory);
  recipe["data"]["train"][0]["path"] = source_path("test/golden/data/triplets.jsonl");
  recipe["data"]["train"][0]["columns"] = {
      {"anchor", "anchor"}, {"positive", "positive"}, {"negative_1", "negative_1"}, {"negative_2", "negative_2"}};
  recipe["train"]["eval_strategy"] = "no";
  recipe["train"]["max_grad_norm"] = 0.01;  // far below the norms, so every step is clipped
  recipe["train"]["learning_rate"] = 0.5;
  for (const char* pooling : {"mean", "cls", "max"}) {
    INFO(pooling);
    recipe["model"]["pooling"] = pooling;
    const TemporaryDirectory runs;
    const std::string one = run(runs, recipe, {1, "no_shard"});
    const std::string two = run(runs, recipe, {2, "full_shard"});
    const std::string three = run(runs, recipe, {3, "full_shard"});
    const RunLog expected = read_log(one);
    CHECK(expected.starts.at(0).at("candidates_per_anchor") == 18);
    const std::vector<double> norms = numbers(expected.steps, "grad_norm");
    CHECK(*std::min_element(norms.begin(), norms.end()) > 0.01);
    check_same_trace(expected, read_log(two), 1e-6);
    check_same_trace(expected, read_log(three), 1e-6);
    CHECK(weight_difference(kInput, one + "/final/model.safetensors") > 1e-5);
    CHECK(weight_difference(one + "/final/model.safetensors", two + "/final/model.safetensors") <= 1e-6);
    CHECK(weight_difference(one + "/final/model.safetensors", three + "/final/model.safetensors") <= 1e-6);
  }
}

// Also field report A22: what every rank loaded is what the file holds.
TEST_CASE("at learning rate 0 the export is the input, byte for byte", "[e2e][law]") {
  const TemporaryDirectory directory;
  Json recipe = uneven_recipe(directory);
  recipe["train"]["max_steps"] = 1;
  recipe["train"]["learning_rate"] = 0;
  recipe["train"]["eval_strategy"] = "no";
  std::string bytes;
  for (const Setting& setting : kSettings) {
    INFO(describe(setting));
    const std::string output = run(directory, recipe, setting) + "/final/model.safetensors";
    CHECK(holds_same_tensors(kInput, output));
    CHECK(read_log(directory.path(std::to_string(setting.ranks) + setting.strategy)).steps.size() == 1);
    bytes = bytes.empty() ? read_bytes(output) : bytes;
    CHECK((bytes == read_bytes(output)));
  }
}

TEST_CASE("packed and padded tokens train the same model", "[e2e][law]") {
  const TemporaryDirectory directory;
  Json recipe = uneven_recipe(directory);
  const std::string packed = run(directory, recipe, {2, "full_shard"});
  recipe["train"]["packing"] = "off";
  const std::string padded = run(directory, recipe, {3, "no_shard"});
  check_same_trace(read_log(packed), read_log(padded), 1e-5);
  CHECK(relative_difference(metric_values(read_log(packed)), metric_values(read_log(padded))) <= 1e-6);
  CHECK(weight_difference(packed + "/final/model.safetensors", padded + "/final/model.safetensors") <= 1e-5);
  CHECK(weight_difference(kInput, padded + "/final/model.safetensors") > 1e-3);
}

}  // namespace stft::test
