// Field reports A27 and A31: saves that hang, and checkpoints with a part missing.
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "e2e/interrupted_run.h"

namespace stft::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

}  // namespace

TEST_CASE("A27: saving every step for ten steps completes", "[e2e][field_reports]") {
  const std::string type = GENERATE("SHARDED_STATE_DICT", "FULL_STATE_DICT");
  const TemporaryDirectory directory;
  Json recipe = saving_recipe(directory, type);
  recipe["train"]["max_steps"] = 10;
  const Outcome outcome = run_stft(train_arguments(write_recipe(directory, recipe)), 120);
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(checkpoint_steps(directory.path("run")) == std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  CHECK(damaged_checkpoints(directory.path("run")).empty());
  CHECK(leftovers(directory.path("run")).empty());
  CHECK(read_log(directory.path("run")).saves.size() == 10);
}

TEST_CASE("A31: a checkpoint without a rank's shard is refused by name, and passed over", "[e2e][field_reports]") {
  const std::string shard = GENERATE("pytorch_model_fsdp_0/__1_0.distcp", "optimizer_0/__1_0.distcp");
  const TemporaryDirectory directory;
  Json recipe = saving_recipe(directory, "SHARDED_STATE_DICT");
  recipe["train"]["max_steps"] = 3;
  const std::string path = write_recipe(directory, recipe);
  REQUIRE(run_stft(train_arguments(path), 120).exit_code == 0);
  const std::string newest = directory.path("run/checkpoint-3");
  REQUIRE(fs::remove(newest + "/" + shard));

  const Outcome given = run_stft(train_arguments(path, {"--resume", newest}), 30);
  INFO(given.err);
  REQUIRE(given.has_ended);
  CHECK(given.exit_code == 2);
  CHECK_THAT(given.err, Contains(newest + "/" + shard));
  CHECK(checkpoint_steps(directory.path("run")) == std::vector<int64_t>{1, 2, 3});

  const Outcome automatic = run_stft(train_arguments(path, {"--resume", "auto"}), 120);
  INFO(automatic.err);
  CHECK(automatic.exit_code == 0);
  CHECK_THAT(automatic.err, Contains("passing over checkpoint-3") && Contains(shard) &&
                                Contains("going on from " + directory.path("run/checkpoint-2") + ":"));
  CHECK(damaged_checkpoints(directory.path("run")).empty());
  CHECK(newest_checkpoint(directory.path("run")) == 3);
}

}  // namespace stft::test
