// Ranks that somebody else starts: the variables of torchrun, Open MPI and srun.
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "e2e/port.h"
#include "e2e/process.h"
#include "e2e/run_files.h"

namespace stft::test {
namespace {

using Catch::Matchers::Contains;

// The names of rank, number of ranks, and the same on one machine.
struct Scheme {
  std::string rank, size, local_rank, local_size;
};

const Scheme kTorchrun = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
const Scheme kOpenMpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                         "OMPI_COMM_WORLD_LOCAL_SIZE"};
const Scheme kSlurm = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"};

std::vector<std::string> variables(const Scheme& scheme, int rank) {
  return {scheme.rank + "=" + std::to_string(rank), scheme.size + "=2", scheme.local_rank + "=" + std::to_string(rank),
          scheme.local_size + "=2"};
}

Command command_with(const std::string& recipe, std::vector<std::string> environment) {
  Command command{{"train", recipe}};
  command.environment = std::move(environment);
  return command;
}

void check_refused(std::vector<std::string> environment, const std::vector<std::string>& expected) {
  const TemporaryDirectory directory;
  const Outcome outcome = run_stft(command_with(write_recipe(directory, small_recipe(directory)), environment));
  INFO(outcome.err);
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.seconds < 5);
  for (const std::string& text : expected) {
    CHECK_THAT(outcome.err, Contains(text));
  }
  CHECK_FALSE(std::filesystem::exists(directory.path("run")));
}

}  // namespace

TEST_CASE("two processes with a rank in the environment are one run", "[e2e][environment]") {
  const TemporaryDirectory directory;
  Json recipe = small_recipe(directory);
  const Outcome launched = run_stft({"train", write_recipe(directory, recipe), "--nproc", "2"});
  INFO(launched.err);
  REQUIRE(launched.exit_code == 0);
  const RunLog expected = read_log(directory.path("run"));

  for (const Scheme& scheme : {kTorchrun, kOpenMpi, kSlurm}) {
    INFO(scheme.rank);
    recipe["run"]["output_dir"] = directory.path(scheme.rank);
    const std::string path = write_recipe(directory, recipe);
    const std::string port = free_port();
    const auto of_rank = [&](int rank) {
      std::vector<std::string> environment = variables(scheme, rank);
      environment.insert(environment.end(), {"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port});
      return command_with(path, environment);
    };
    Process first(of_rank(0));
    Process second(of_rank(1));
    for (Process* process : {&first, &second}) {
      const Outcome outcome = process->wait(60);
      INFO(outcome.err);
      CHECK(outcome.exit_code == 0);
      CHECK(outcome.out.empty());
    }
    const RunLog log = read_log(directory.path(scheme.rank));
    REQUIRE(log.starts.size() == 1);
    CHECK(log.starts[0].at("world_size") == 2);
    CHECK(numbers(log.steps, "loss") == numbers(expected.steps, "loss"));
    CHECK(holds_same_tensors(directory.path("run/final/model.safetensors"),
                             directory.path(scheme.rank + "/final/model.safetensors")));
  }
}

TEST_CASE("ranks without a place to meet are refused", "[e2e][environment]") {
  for (const Scheme& scheme : {kTorchrun, kOpenMpi, kSlurm}) {
    INFO(scheme.rank);
    check_refused(variables(scheme, 0), {"MASTER_ADDR", "MASTER_PORT"});
  }
  std::vector<std::string> environment = variables(kOpenMpi, 0);
  environment.insert(environment.end(), {"MASTER_ADDR=127.0.0.1", "MASTER_PORT=70000"});
  check_refused(environment, {"MASTER_PORT"});
}

TEST_CASE("a part of a rank's variables, or values that cannot be, are refused", "[e2e][environment]") {
  check_refused({"RANK=0"}, {"WORLD_SIZE"});
  check_refused({"WORLD_SIZE=2"}, {"RANK"});
  check_refused({"RANK=2", "WORLD_SIZE=2"}, {"RANK"});
  check_refused({"RANK=one", "WORLD_SIZE=2"}, {"RANK", "one"});
  check_refused({"RANK=-1", "WORLD_SIZE=2"}, {"RANK", "-1"});
  check_refused({"OMPI_COMM_WORLD_RANK=0"}, {"OMPI_COMM_WORLD_SIZE"});
}

TEST_CASE("ranks on several machines are refused", "[e2e][environment]") {
  for (const Scheme& scheme : {kTorchrun, kOpenMpi}) {
    check_refused({scheme.rank + "=0", scheme.size + "=2", scheme.local_rank + "=0", scheme.local_size + "=1",
                   "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + free_port()},
                  {"not available yet"});
  }
}

TEST_CASE("a batch script's variables alone make no rank", "[e2e][environment]") {
  const TemporaryDirectory directory;
  const Outcome outcome = run_stft(command_with(write_recipe(directory, small_recipe(directory)),
                                                {"SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_LOCALID=0"}));
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(read_log(directory.path("run")).starts.at(0).at("world_size") == 1);
}

}  // namespace stft::test
