// The recipe's `sharding:` block as processes meet it.
#include <catch2/catch.hpp>
#include <vector>

#include "e2e/process.h"
#include "e2e/run_files.h"
#include "io/temporary_directory.h"

using namespace stft::test;
using Catch::Contains;

namespace {

Json recipe_of(const TemporaryDirectory& directory, const std::string& output, const Json& sharding) {
  Json recipe = small_recipe(directory);
  recipe["run"]["output_dir"] = directory.path(output);
  recipe["train"]["global_batch_size"] = 8;
  recipe["train"].erase("per_device_train_batch_size");
  recipe["sharding"] = sharding;
  recipe["evaluators"] = Json::array({beir_evaluator()});
  recipe["train"]["eval_strategy"] = "no";
  return recipe;
}

}  // namespace

TEST_CASE("strategies train alike as processes; the log tells what was done and what each rank keeps", "[e2e]") {
  const TemporaryDirectory directory;
  const auto train = [&](const std::string& output, const Json& sharding, int ranks) {
    const Outcome outcome = run_stft(
        {"train", write_recipe(directory, recipe_of(directory, output, sharding)), "--nproc", std::to_string(ranks)});
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return read_log(directory.path(output));
  };
  const RunLog one = train("one", Json::object(), 1);
  const std::vector<std::pair<std::string, Json>> variants = {
      {"hybrid_shard", {{"strategy", "hybrid_shard"}, {"hybrid_shard_size", 2}, {"wrap", "block"}}},
      {"shard_grad_op", {{"strategy", "shard_grad_op"}, {"wrap", Json::array({"layer"})}}},
      {"no_shard", {{"strategy", "auto"}}},
      {"full_shard", {{"strategy", "full_shard"}, {"cpu_offload", true}, {"prefetch", 2}, {"wrap", "block"}}}};
  for (const auto& [strategy, sharding] : variants) {
    const int ranks = strategy == "hybrid_shard" ? 4 : 2;
    INFO(strategy);
    const RunLog log = train(strategy, sharding, ranks);
    CHECK(relative_difference(numbers(log.steps, "loss"), numbers(one.steps, "loss")) < 1e-6);
    CHECK(weight_difference(directory.path(strategy + "/final/model.safetensors"),
                            directory.path("one/final/model.safetensors")) < 1e-6);
    CHECK_THAT(log.starts.front()["strategy"].get<std::string>(), Contains(strategy));
    for (const char* key : {"parameters_bytes", "gradients_bytes", "gathers_bytes", "optimizer_bytes"}) {
      INFO(key);
      const Json planned = log.starts.front()["memory"][key];
      CHECK(planned.size() == static_cast<size_t>(ranks));
      CHECK(log.steps.back()["memory"][key] == planned);
    }
    CHECK(log.steps.back()["memory"]["peak_resident_bytes"].size() == static_cast<size_t>(ranks));
  }
  const Json whole = one.starts.front()["memory"]["parameters_bytes"][0];
  const RunLog halves = read_log(directory.path("shard_grad_op"));
  CHECK(halves.starts.front()["memory"]["parameters_bytes"][0].get<double>() < 0.55 * whole.get<double>());

  // The strategy of the run that trained does not bind an evaluation.
  const Outcome evaluated = run_stft({"eval", directory.path("hybrid_shard/final"), "--recipe",
                                      directory.path("hybrid_shard/recipe.resolved.yaml"), "--nproc", "1", "--json"});
  INFO(evaluated.err);
  CHECK(evaluated.exit_code == 0);
}

TEST_CASE("bf16 and activation checkpointing through the recipe", "[e2e]") {
  const TemporaryDirectory directory;
  const auto train = [&](const std::string& output, bool is_bf16, bool recomputes) {
    Json recipe = recipe_of(directory, output, {{"wrap", "block"}});
    recipe["train"]["bf16"] = is_bf16;
    recipe["train"]["gradient_checkpointing"] = recomputes;
    const Outcome outcome = run_stft({"train", write_recipe(directory, recipe), "--nproc", "2"});
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return directory.path(output + "/final/model.safetensors");
  };
  const std::string plain = train("plain", false, false);
  CHECK(holds_same_tensors(train("recomputed", false, true), plain));
  const std::string narrow = train("narrow", true, false);
  CHECK(weight_difference(narrow, plain) > 0);
  CHECK(weight_difference(narrow, plain) < 1e-2);
  CHECK(holds_same_tensors(train("both", true, true), narrow));
}

TEST_CASE("a module that cannot be wrapped and sizes that do not divide name the key", "[e2e]") {
  const TemporaryDirectory directory;
  const auto message_of = [&](const Json& sharding, const std::vector<std::string>& command) {
    std::vector<std::string> arguments = {command.front(),
                                          write_recipe(directory, recipe_of(directory, "x", sharding))};
    arguments.insert(arguments.end(), command.begin() + 1, command.end());
    const Outcome outcome = run_stft(arguments);
    INFO(outcome.err);
    CHECK(outcome.exit_code == 2);
    return outcome.err;
  };
  CHECK_THAT(
      message_of({{"wrap", Json::array({"BertLayer"})}}, {"check"}),
      Contains("sharding.wrap") && Contains("'BertLayer' ends the name of no module") && Contains("encoder.layer.0"));
  CHECK_THAT(message_of({{"wrap", Json::array({"BertLayer"})}}, {"train", "--nproc", "2"}),
             Contains("encoder.layer.0"));
  CHECK_THAT(message_of({{"strategy", "hybrid_shard"}, {"hybrid_shard_size", 2}}, {"train", "--nproc", "1"}),
             Contains("sharding.hybrid_shard_size") && Contains("1 rank(s) do not divide into groups of 2"));
  CHECK_THAT(message_of({{"reshard_after_forward", 2}}, {"check", "--world-size", "3"}),
             Contains("sharding.reshard_after_forward") && Contains("do not divide into groups of 2"));
}
