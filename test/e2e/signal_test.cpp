// SIGTERM, SIGUSR1 and SIGINT to the launcher or to one rank, at any time: a complete checkpoint, exit code 75, and a
// resumed run that ends as one that nobody stopped.
#include <signal.h>

#include <array>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "e2e/interrupted_run.h"

namespace stft::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

constexpr double kStopSeconds = 120;
constexpr int kLauncher = -1;
constexpr std::array<int, 3> kSignals = {SIGTERM, SIGUSR1, SIGINT};
constexpr std::array<int, 3> kTargets = {kLauncher, 0, 1};

enum class Phase { kStartUp, kTraining, kEvaluation, kSaving };

std::string documents(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    const std::string number = std::to_string(i);
    lines += R"({"_id": "more-)" + number + R"(", "text": "the document of number )" + number +
             R"(, which tells nothing that any of the queries asks for, at some length"})" + "\n";
  }
  return lines;
}

// Whether the signals to stop stay pending when they come to the process, or are caught.
bool takes_signals(pid_t pid) {
  const std::string status = read_bytes("/proc/" + std::to_string(pid) + "/status");
  const auto mask = [&](const std::string& name) {
    const size_t at = status.find(name + ":");
    return at == std::string::npos ? 0ULL : std::stoull(status.substr(at + name.size() + 1), nullptr, 16);
  };
  return ((mask("SigBlk") | mask("SigCgt")) >> (SIGTERM - 1) & 1) != 0;
}

class StoppedRun {
 public:
  explicit StoppedRun(Phase phase) : phase_(phase), recipe_(saving_recipe(directory_, "SHARDED_STATE_DICT")) {
    if (phase != Phase::kSaving) {
      recipe_["checkpoint"]["save_steps"] = 100000;
    }
    if (phase == Phase::kEvaluation) {  // one that lasts
      Json evaluator = beir_evaluator();
      const std::string corpus = evaluator["corpus"]["path"];
      evaluator["corpus"]["path"] = directory_.write("corpus.jsonl", read_bytes(corpus) + documents(4000));
      recipe_["evaluators"] = Json::array({evaluator});
      recipe_["train"]["eval_strategy"] = "steps";
      recipe_["train"]["eval_steps"] = 2;
      recipe_["train"]["eval_on_start"] = false;
    }
    recipe_path_ = write_recipe(directory_, recipe_);
  }

  void check(int target, int signal_number) {
    fs::remove_all(run());
    Process process({train_arguments(recipe_path_), {}, /*has_terminal=*/phase_ == Phase::kEvaluation});
    stop(process, target, signal_number);
    const Outcome outcome = process.wait(kStopSeconds);
    INFO(outcome.err);
    REQUIRE(outcome.has_ended);
    CHECK(outcome.exit_code == 75);
    CHECK_THAT(outcome.err, !Contains("error: "));
    CHECK(leftovers(run()).empty());
    CHECK(damaged_checkpoints(run()).empty());
    check_goes_on(check_stopped());
  }

 private:
  std::string run() const { return directory_.path("run"); }

  // Waits for the phase and sends the signal in it.
  void stop(Process& process, int target, int signal_number) {
    if (phase_ == Phase::kStartUp && target == kLauncher) {
      while (!takes_signals(process.pid()) && !process.handle().is_gone_within(0)) {
      }
      process.handle().send(signal_number);
      return;
    }
    const std::vector<RankProcess> ranks = wait_for_ranks(process, 2);
    INFO(process.err());
    REQUIRE(ranks.size() == 2);
    const ProcessHandle& chosen = target == kLauncher ? process.handle() : handle_of(ranks, target);
    if (phase_ == Phase::kTraining) {
      REQUIRE(wait_for_text(process, "step 3/"));
    } else if (phase_ == Phase::kEvaluation) {
      REQUIRE(wait_for_text(process, "evaluating"));
    } else if (phase_ == Phase::kSaving) {
      halt_in_saving(process, handle_of(ranks, 0));
    }
    chosen.send(signal_number);
    handle_of(ranks, 0).send(SIGCONT);
  }

  // Leaves rank 0 stopped between the start of a checkpoint and its name.
  void halt_in_saving(Process& process, const ProcessHandle& first) {
    for (int64_t step = 1; step <= 20; ++step) {
      const std::string name = run() + "/checkpoint-" + std::to_string(step);
      REQUIRE(wait_for_path(process, name + ".tmp"));
      first.send(SIGSTOP);
      while (process_state(first.pid()) != 'T') {
      }
      if (fs::exists(name + ".tmp") && !fs::exists(name)) {
        return;
      }
      first.send(SIGCONT);
      REQUIRE(wait_for_path(process, name));
    }
    FAIL("no checkpoint was caught while it was written");
  }

  static char process_state(pid_t pid) {
    const std::string stat = read_bytes("/proc/" + std::to_string(pid) + "/stat");
    return stat.at(stat.rfind(')') + 2);
  }

  // Returns the step at which the run stopped.
  int64_t check_stopped() const {
    const RunLog log = read_log(run());
    REQUIRE(log.stops.size() == 1);
    CHECK(log.ends.empty());
    const int64_t step = log.stops.front().at("step");
    CHECK(newest_checkpoint(run()) == step);
    CHECK(log.steps.size() == static_cast<size_t>(step));
    if (phase_ == Phase::kStartUp) {
      CHECK(step == 0);
    } else if (phase_ == Phase::kEvaluation) {
      CHECK(step == 2);
      CHECK(log.evals.empty());
    } else {
      CHECK(step > 0);
    }
    return step;
  }

  void check_goes_on(int64_t step) {
    const int64_t steps = step + 2;
    const Outcome outcome = run_stft(
        train_arguments(recipe_path_, {"--resume", "auto", "--set", "train.max_steps=" + std::to_string(steps)}), 300);
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    CHECK_THAT(outcome.err, Contains("going on from " + run() + "/checkpoint-" + std::to_string(step) + ":"));
    const std::string reference = uninterrupted_run(directory_, recipe_, steps);
    CHECK(different_files(run() + "/final", reference + "/final").empty());
    const RunLog log = read_log(run());
    CHECK(numbers(log.steps, "loss") == numbers(read_log(reference).steps, "loss"));
    if (phase_ == Phase::kEvaluation) {
      CHECK(numbers(log.evals, "step") == std::vector<double>{2, 4});
    }
  }

  Phase phase_;
  TemporaryDirectory directory_;
  Json recipe_;
  std::string recipe_path_;
};

// Every target with one signal, each with another; the others by another shift.
void check_targets(Phase phase, size_t shift) {
  StoppedRun run(phase);
  for (size_t i = 0; i < kTargets.size(); ++i) {
    const int signal_number = kSignals[(i + shift) % kSignals.size()];
    INFO("target " << kTargets[i] << " (-1: the launcher), signal " << signal_number);
    run.check(kTargets[i], signal_number);
  }
}

}  // namespace

TEST_CASE("a signal to stop in start-up leaves checkpoint-0", "[e2e][signal]") {
  check_targets(Phase::kStartUp, 0);
}

TEST_CASE("a signal to stop in training is answered with a checkpoint", "[e2e][signal]") {
  check_targets(Phase::kTraining, 1);
}

TEST_CASE("a signal to stop in an evaluation interrupts it; the resumed run does it", "[e2e][signal]") {
  check_targets(Phase::kEvaluation, 2);
}

TEST_CASE("a signal to stop while a checkpoint is saved", "[e2e][signal]") {
  check_targets(Phase::kSaving, 0);
}

TEST_CASE("all signals to stop, to the launcher and to each rank, in all phases", "[.][slow][signal]") {
  for (const size_t shift : {0, 1, 2}) {
    for (const Phase phase : {Phase::kStartUp, Phase::kTraining, Phase::kEvaluation, Phase::kSaving}) {
      check_targets(phase, shift);
    }
  }
}

TEST_CASE("a second SIGINT leaves at once", "[e2e][signal]") {
  const TemporaryDirectory directory;
  Process process({train_arguments(write_recipe(directory, saving_recipe(directory, "FULL_STATE_DICT"))), {}, false});
  REQUIRE(wait_for_text(process, "saved checkpoint-2 "));
  const std::vector<RankProcess> ranks = ranks_of(process.pid());
  REQUIRE(ranks.size() == 2);
  handle_of(ranks, 1).send(SIGSTOP);  // it will save nothing more
  process.handle().send(SIGINT);
  REQUIRE(wait_for_text(process, "asked by SIGINT"));
  process.handle().send(SIGINT);
  CHECK(process.handle().is_gone_within(2));
  const Outcome outcome = process.wait(10);
  INFO(outcome.err);
  REQUIRE(outcome.has_ended);
  CHECK(outcome.exit_code == 1);
  for (const RankProcess& rank : ranks) {
    CHECK(rank.handle.is_gone_within(0));
  }
  CHECK(damaged_checkpoints(directory.path("run")).empty());
  CHECK(newest_checkpoint(directory.path("run")).value_or(0) >= 2);
}

}  // namespace stft::test
