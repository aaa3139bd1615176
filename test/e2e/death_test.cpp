// Ranks and launchers that die: all of a run is gone within 10 s, and the message names who died first.
#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "e2e/process.h"
#include "e2e/run_files.h"

namespace stft::test {
namespace {

using Catch::Matchers::Contains;

constexpr double kStartSeconds = 60;
constexpr double kGoneSeconds = 10;
constexpr double kStopSeconds = 60;  // to save and leave

// A run that would take hours, in the middle of its steps.
class LongRun {
 public:
  explicit LongRun(int ranks, int timeout_s = 60) : process_(command(directory_, ranks, timeout_s)) {
    const bool trains = process_.wait_until(
        [](const Process& p) { return p.err().find("step 3/100000") != std::string::npos; }, kStartSeconds);
    INFO(process_.err());
    REQUIRE(trains);
    ranks_ = ranks_of(process_.pid());
    REQUIRE(ranks_.size() == static_cast<size_t>(ranks));
  }

  Process& process() { return process_; }
  const std::vector<RankProcess>& ranks() const { return ranks_; }

  const ProcessHandle& rank(int number) const {
    for (const RankProcess& rank : ranks_) {
      if (rank.rank == number) {
        return rank.handle;
      }
    }
    throw std::out_of_range("no such rank");
  }

  void check_ranks_are_gone(double seconds) const {
    for (const RankProcess& rank : ranks_) {
      INFO("rank " << rank.rank);
      CHECK(rank.handle.is_gone_within(seconds));
    }
  }

  static Command command(const TemporaryDirectory& directory, int ranks, int timeout_s) {
    Json recipe = small_recipe(directory);
    recipe["train"]["max_steps"] = 100000;
    recipe["launch"]["timeout_s"] = timeout_s;
    return {{"train", write_recipe(directory, recipe), "--nproc", std::to_string(ranks)}, {}, false};
  }

 private:
  TemporaryDirectory directory_;
  Process process_;
  std::vector<RankProcess> ranks_;
};

// Looks for the ranks without a pause, to catch them before they have done anything.
std::vector<RankProcess> catch_ranks(pid_t launcher, size_t count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::vector<RankProcess> ranks = ranks_of(launcher);
  while (ranks.size() < count && std::chrono::steady_clock::now() < deadline) {
    ranks = ranks_of(launcher);
  }
  return ranks;
}

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  const size_t begin = text.rfind('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1);
}

}  // namespace

TEST_CASE("ranks are the launcher's only children and are named stft", "[e2e][death]") {
  const LongRun run(2);
  for (const RankProcess& rank : run.ranks()) {
    CHECK(read_bytes("/proc/" + std::to_string(rank.handle.pid()) + "/comm") == "stft\n");
    CHECK(read_bytes("/proc/" + std::to_string(rank.handle.pid()) + "/cmdline").starts_with("stft"));
  }
}

TEST_CASE("a rank killed in mid-step brings the run down and is named", "[e2e][death]") {
  const int killed = GENERATE(0, 1);
  LongRun run(2);
  run.rank(killed).send(SIGKILL);
  const Outcome outcome = run.process().wait(kGoneSeconds);
  INFO(outcome.err);
  REQUIRE(outcome.has_ended);
  CHECK(outcome.exit_code == 1);
  CHECK_THAT(last_line(outcome.err), Contains("rank " + std::to_string(killed) + " ") && Contains("killed"));
  run.check_ranks_are_gone(0);
}

TEST_CASE("a rank killed while another is stopped brings the run down", "[e2e][death]") {
  LongRun run(3);
  run.rank(2).send(SIGSTOP);
  run.rank(1).send(SIGKILL);
  const Outcome outcome = run.process().wait(kGoneSeconds);
  INFO(outcome.err);
  REQUIRE(outcome.has_ended);
  CHECK(outcome.exit_code == 1);
  CHECK_THAT(last_line(outcome.err), Contains("rank 1 ") && Contains("killed"));
  run.check_ranks_are_gone(0);
}

TEST_CASE("a rank that stops answering ends the run within the timeout and 10 s", "[e2e][death]") {
  LongRun run(2, 3);
  run.rank(1).send(SIGSTOP);
  const Outcome outcome = run.process().wait(3 + kGoneSeconds);
  INFO(outcome.err);
  REQUIRE(outcome.has_ended);
  CHECK(outcome.exit_code == 1);
  CHECK_THAT(outcome.err, Contains("error: "));
  run.check_ranks_are_gone(0);
}

TEST_CASE("the launcher passes on what stops it", "[e2e][death]") {
  const int signal_number = GENERATE(SIGTERM, SIGINT);
  LongRun run(2);
  run.process().handle().send(signal_number);
  const Outcome outcome = run.process().wait(kStopSeconds);
  INFO(outcome.err);
  REQUIRE(outcome.has_ended);
  CHECK(outcome.exit_code == 75);
  run.check_ranks_are_gone(0);
}

TEST_CASE("ranks do not outlive a launcher that was killed", "[e2e][death]") {
  LongRun run(2);
  run.process().handle().send(SIGKILL);
  CHECK(run.process().handle().is_gone_within(kGoneSeconds));
  run.check_ranks_are_gone(kGoneSeconds);
}

TEST_CASE("ranks do not outlive a launcher that was killed while they start", "[e2e][death]") {
  for (int attempt = 0; attempt < 5; ++attempt) {
    const TemporaryDirectory directory;
    Process process(LongRun::command(directory, 2, 60));
    const std::vector<RankProcess> ranks = catch_ranks(process.pid(), 2);
    REQUIRE(ranks.size() == 2);
    process.handle().send(SIGKILL);
    for (const RankProcess& rank : ranks) {
      INFO("rank " << rank.rank);
      CHECK(rank.handle.is_gone_within(kGoneSeconds));
      rank.handle.send(SIGKILL);
    }
  }
}

TEST_CASE("a run of a single rank saves and stops when it is told to", "[e2e][death]") {
  const TemporaryDirectory directory;
  Process process(LongRun::command(directory, 1, 60));
  REQUIRE(process.wait_until([](const Process& p) { return p.err().find("step 3/100000") != std::string::npos; },
                             kStartSeconds));
  process.handle().send(SIGTERM);
  const Outcome outcome = process.wait(kStopSeconds);
  INFO(outcome.err);
  REQUIRE(outcome.has_ended);
  CHECK(outcome.exit_code == 75);
  CHECK_THAT(outcome.err, Contains("--resume auto goes on from it"));
}

}  // namespace stft::test
