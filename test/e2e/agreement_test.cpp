// Ranks that somebody else starts, each with its own command: they run the same, or all of them say what differs.
#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "e2e/port.h"
#include "e2e/process.h"
#include "e2e/run_files.h"

namespace stft::test {
namespace {

using Catch::Matchers::Contains;

// One command a rank. All must end by themselves within seconds, with exit code 2 and the same message, which is
// returned.
std::string refusal_of(const std::vector<std::vector<std::string>>& arguments) {
  const std::string port = free_port();
  const std::string ranks = std::to_string(arguments.size());
  std::vector<std::unique_ptr<Process>> processes;
  for (size_t rank = 0; rank < arguments.size(); ++rank) {
    Command command{arguments[rank]};
    command.environment = {"RANK=" + std::to_string(rank),       "WORLD_SIZE=" + ranks,       "MASTER_ADDR=127.0.0.1",
                           "LOCAL_RANK=" + std::to_string(rank), "LOCAL_WORLD_SIZE=" + ranks, "MASTER_PORT=" + port};
    processes.push_back(std::make_unique<Process>(command));
  }
  std::vector<std::string> messages;
  for (auto& process : processes) {
    const Outcome outcome = process->wait(30);
    INFO(outcome.err);
    CHECK(outcome.has_ended);
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.seconds < 15);
    const size_t begin = outcome.err.find("error: ");
    messages.push_back(begin == std::string::npos ? outcome.err : outcome.err.substr(begin));
  }
  for (const std::string& message : messages) {
    CHECK(message == messages.front());
  }
  return messages.front();
}

}  // namespace

TEST_CASE("ranks with different recipes all name the key that differs", "[e2e][agreement]") {  // T29
  const TemporaryDirectory directory;
  const std::string path = write_recipe(directory, small_recipe(directory));
  const std::string message =
      refusal_of({{"train", path}, {"train", path, "--set", "train.learning_rate=0.25"}, {"train", path}});
  CHECK_THAT(message, Contains("recipe: 'train.learning_rate: 0.05' on ranks 0 and 2, 'train.learning_rate: 0.25' on "
                               "rank 1"));
  CHECK_FALSE(std::filesystem::exists(directory.path("run")));
}

TEST_CASE("ranks with different strategies, commands or flags are refused", "[e2e][agreement]") {  // T29
  const TemporaryDirectory directory;
  Json recipe = small_recipe(directory);
  recipe["evaluators"] = Json::array({beir_evaluator()});
  const std::string path = write_recipe(directory, recipe);
  CHECK_THAT(refusal_of({{"train", path, "--set", "sharding.strategy=no_shard"}, {"train", path}}),
             Contains("recipe: 'sharding.strategy: no_shard' on rank 0, 'sharding.strategy: full_shard' on rank 1"));
  CHECK_THAT(refusal_of({{"train", path, "--resume", "auto"}, {"train", path}}),
             Contains("command: 'train --resume auto' on rank 0, 'train' on rank 1"));
  CHECK_THAT(refusal_of({{"train", path}, {"eval", recipe["model"]["name_or_path"], "--recipe", path}}),
             Contains("command: 'train' on rank 0, 'evaluation' on rank 1"));
  CHECK_FALSE(std::filesystem::exists(directory.path("run")));
}

TEST_CASE("ranks that were started for different numbers of ranks do not wait for each other", "[e2e][agreement]") {
  const TemporaryDirectory directory;
  const std::string path = write_recipe(directory, small_recipe(directory));
  const std::string port = free_port();
  std::vector<std::unique_ptr<Process>> processes;
  for (const std::string rank : {"0", "1"}) {
    const std::string ranks = rank == "0" ? "2" : "3";
    Command command{{"train", path}};
    command.environment = {"RANK=" + rank,       "WORLD_SIZE=" + ranks,       "MASTER_ADDR=127.0.0.1",
                           "LOCAL_RANK=" + rank, "LOCAL_WORLD_SIZE=" + ranks, "MASTER_PORT=" + port};
    processes.push_back(std::make_unique<Process>(command));
  }
  const Outcome first = processes[0]->wait(30);
  const Outcome second = processes[1]->wait(30);
  INFO(first.err << second.err);
  CHECK(first.has_ended);
  CHECK(second.has_ended);
  CHECK(first.exit_code == 2);
  CHECK_THAT(first.err, Contains("different numbers of ranks: rank 0 for 2, rank 1 for 3"));
  CHECK(second.exit_code != 0);  // the store may have gone with rank 0 before it was asked
}

TEST_CASE("ranks that evaluate with different recipes, or encode different texts, are refused", "[e2e][agreement]") {
  const TemporaryDirectory directory;
  Json recipe = small_recipe(directory);
  recipe["evaluators"] = Json::array({beir_evaluator()});
  const std::string path = write_recipe(directory, recipe);
  const std::string model = recipe["model"]["name_or_path"];
  CHECK_THAT(refusal_of({{"eval", model, "--recipe", path},
                         {"eval", model, "--recipe", path, "--set", "evaluators.0.batch_size=7"}}),
             Contains("recipe: 'evaluators.0.batch_size: null' on rank 0, 'evaluators.0.batch_size: 7' on rank 1"));

  const std::string one = directory.write("one.txt", "a text\nanother\n");
  const std::string two = directory.write("two.txt", "a text\nanother\nand a third\n");
  const std::string out = directory.path("out.npy");
  CHECK_THAT(refusal_of({{"encode", model, "--input", one, "--output", out},
                         {"encode", model, "--input", two, "--output", out}}),
             Contains("texts: '2 texts, ") && Contains("'3 texts, "));
  CHECK_FALSE(std::filesystem::exists(out));
}

}  // namespace stft::test
