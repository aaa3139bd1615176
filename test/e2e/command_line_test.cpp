// Flags, files and results as the command line takes and gives them.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "e2e/process.h"
#include "e2e/run_files.h"

namespace stft::test {
namespace {

using Catch::Matchers::Contains;

void check_refused(const std::vector<std::string>& arguments, const std::vector<std::string>& expected) {
  const Outcome outcome = run_stft(arguments);
  INFO(outcome.err);
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.seconds < 5);
  CHECK(outcome.out.empty());
  for (const std::string& text : expected) {
    CHECK_THAT(outcome.err, Contains(text));
  }
}

}  // namespace

TEST_CASE("check prints the resolved recipe alone on standard output", "[e2e][cli]") {
  const Outcome outcome = run_stft({"check", "configs/tiny.yaml", "--world-size", "3", "--set", "train.max_steps=7"});
  CHECK(outcome.exit_code == 0);
  CHECK_THAT(outcome.err, !Contains("error"));
  CHECK_THAT(outcome.out, Contains("per_device_train_batch_size: 8\n"));
  CHECK_THAT(outcome.out, Contains("max_steps: 7\n"));
  CHECK_THAT(outcome.out, Contains("strategy: full_shard\n"));
}

TEST_CASE("check lists every problem on standard error only", "[e2e][cli]") {
  check_refused({"check", "configs/tiny.yaml", "--set", "train.learnig_rate=1", "--set", "sharding.strategy=half"},
                {"train.learning_rate", "sharding.strategy", "full_shard"});
  check_refused({"check", "test/bad_recipes/many_problems.yaml"}, {"many_problems.yaml:"});
}

TEST_CASE("unknown flags, missing recipes and wrong numbers are the user's mistakes", "[e2e][cli]") {
  check_refused({"train", "configs/tiny.yaml", "--bogus"}, {"--bogus"});
  check_refused({"train", "configs/tiny.yaml", "--nproc", "0"}, {"--nproc"});
  check_refused({"train", "configs/tiny.yaml", "--nproc", "two"}, {"--nproc"});
  check_refused({"train", "configs/tiny.yaml", "configs/quickstart.yaml"}, {"configs/quickstart.yaml"});
  check_refused({"train"}, {"recipe"});
  check_refused({"trian", "configs/tiny.yaml"}, {"trian"});
  check_refused({}, {"subcommand"});
  for (const char* command : {"train", "check"}) {
    check_refused({command, "no/such/recipe.yaml"}, {"no/such/recipe.yaml", "No such file"});
    check_refused({command, "configs"}, {"configs"});
    check_refused({command, "configs/tiny.yaml", "--set", "train.max_steps"}, {"train.max_steps"});
    check_refused({command, "configs/tiny.yaml", "--set", "train.max_steps=[1"}, {"train.max_steps"});
  }
}

TEST_CASE("what a later version brings is refused by name", "[e2e][cli]") {
  for (const char* flag : {"--nnodes", "--node-rank", "--rdzv", "--max-restarts"}) {
    check_refused({"train", "configs/tiny.yaml", flag, "1"}, {std::string(flag) + " is not available yet"});
  }
  for (const char* command : {"mine", "plan"}) {
    check_refused({command, "runs/tiny", "--out", "x"}, {std::string("stft ") + command + " is not available yet"});
  }
  check_refused({"train", "configs/tiny.yaml", "--set", "adapter.type=qlora"},
                {"adapter.type", "qlora needs a block quantization"});
  check_refused({"train", "configs/tiny.yaml", "--set", "checkpoint.async=true"},
                {"checkpoint.async", "not available yet"});
}

TEST_CASE("help and version are results", "[e2e][cli]") {
  const Outcome version = run_stft({"--version"});
  CHECK(version.exit_code == 0);
  CHECK_THAT(version.out, Catch::Matchers::StartsWith("stft "));
  CHECK(version.err.empty());
  for (const char* command :
       {"train", "check", "tokenize", "encode", "eval", "export", "state-dict", "best", "verify"}) {
    const Outcome help = run_stft({command, "--help"});
    CHECK(help.exit_code == 0);
    CHECK_THAT(help.out, Contains(std::string("stft ") + command));
    CHECK(help.err.empty());
  }
  CHECK_THAT(run_stft({"--help"}).out, Contains("train") && Contains("check") && Contains("tokenize"));
}

}  // namespace stft::test
