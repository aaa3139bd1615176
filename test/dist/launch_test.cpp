// What the launcher does about signals and about ranks that stop.
#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "e2e/process.h"

namespace stft::test {
namespace {

using Catch::Matchers::Contains;

constexpr double kStartSeconds = 30;
constexpr double kEndSeconds = 20;
constexpr double kAtOnceSeconds = 2;
constexpr double kGraceSeconds = 5;
constexpr int kStopped = 75;

size_t count(const std::string& text, const std::string& part) {
  size_t result = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++result;
  }
  return result;
}

// A launcher whose ranks (two, unless said otherwise) are up.
class Launched {
 public:
  explicit Launched(const std::string& mode, const std::string& on_stop = "saves", size_t ranks = 2)
      : Launched(Command{{std::to_string(ranks), on_stop, mode}, {}, false, {}, {}}, ranks) {}

  Launched(const Command& command, size_t ranks) : process_(command), count_(ranks) {
    wait_for_all("up\n");
    ranks_ = ranks_of(process_.pid());
    REQUIRE(ranks_.size() == ranks);
  }

  void wait_for_all(const std::string& line) {
    const bool has_come =
        process_.wait_until([&](const Process& p) { return count(p.err(), line) == count_; }, kStartSeconds);
    INFO(process_.err());
    REQUIRE(has_come);
  }

  void send(int signal_number) const { process_.handle().send(signal_number); }
  void send_to_all(int signal_number) const { ::kill(-process_.pid(), signal_number); }

  const ProcessHandle& rank(int number) const {
    for (const RankProcess& rank : ranks_) {
      if (rank.rank == number) {
        return rank.handle;
      }
    }
    throw std::out_of_range("no such rank");
  }

  // Until the launcher has taken note of the end of all but `left` ranks.
  void wait_until_left(size_t left) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (ranks_of(process_.pid()).size() > left) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
    }
  }

  Outcome end(double seconds = kEndSeconds) {
    Outcome outcome = process_.wait(seconds);
    INFO(outcome.err);
    REQUIRE(outcome.has_ended);
    for (const RankProcess& rank : ranks_) {
      CHECK(rank.handle.is_gone_within(0));
    }
    return outcome;
  }

 private:
  Process process_;
  size_t count_;
  std::vector<RankProcess> ranks_;
};

struct Forwarding {
  int sent;
  const char* name;
  const char* taken;
};

}  // namespace

TEST_CASE("each stop signal reaches ranks that save, and the run counts as stopped", "[dist][launch]") {
  const Forwarding forwarding =
      GENERATE(Forwarding{SIGTERM, "SIGTERM", "SIGTERM"}, Forwarding{SIGUSR1, "SIGUSR1", "SIGUSR1"},
               Forwarding{SIGINT, "SIGINT", "SIGTERM"});
  Launched launched("saver");
  launched.send(forwarding.sent);
  const Outcome outcome = launched.end();
  INFO(outcome.err);
  CHECK(outcome.exit_code == kStopped);
  CHECK(count(outcome.err, std::string("took ") + forwarding.taken + "\n") == 2);
  CHECK(count(outcome.err, "saved\n") == 2);
  CHECK(count(outcome.err, std::string("stopping: asked by ") + forwarding.name) == 1);
  CHECK(outcome.err.find("error") == std::string::npos);
}

TEST_CASE("each stop signal ends ranks that save nothing", "[dist][launch]") {
  const int number = GENERATE(SIGTERM, SIGUSR1, SIGINT);
  const std::string mode = GENERATE("plain", "late_plain");
  Launched launched(mode, "dies");
  launched.send(number);
  const Outcome outcome = launched.end();
  INFO(outcome.err);
  CHECK(outcome.exit_code == 1);
  CHECK_THAT(outcome.err, Contains("was killed by signal " + std::to_string(number)));
  CHECK(outcome.err.find("stopping") == std::string::npos);
}

TEST_CASE("a stop signal that comes before a rank can catch it is not lost", "[dist][launch]") {
  const int number = GENERATE(SIGTERM, SIGUSR1, SIGINT);
  Launched launched("late_saver");
  launched.send(number);
  CHECK(launched.end().exit_code == kStopped);
}

TEST_CASE("a stop signal to a rank itself is seen by that rank", "[dist][launch]") {
  const int number = GENERATE(SIGTERM, SIGUSR1, SIGINT);
  Launched launched("saver", "saves", 1);
  launched.rank(0).send(number);
  CHECK(launched.end().exit_code == kStopped);
}

TEST_CASE("ranks answer SIGINT though the launcher was started with it ignored", "[dist][launch]") {
  const std::string helper = STFT_EXECUTABLE;
  const Command command{{"-c", "trap '' INT; exec " + helper + " 1 dies plain"}, {}, false, {}, "/bin/sh"};
  Launched launched(command, 1);
  launched.send(SIGINT);
  const Outcome outcome = launched.end();
  CHECK(outcome.exit_code == 1);
  CHECK_THAT(outcome.err, Contains("was killed by signal 2"));
}

TEST_CASE("a second SIGINT leaves at once", "[dist][launch]") {
  const bool is_terminal = GENERATE(false, true);  // whose Ctrl-C reaches the ranks as well
  Launched launched("stubborn");
  const auto interrupt = [&] { is_terminal ? launched.send_to_all(SIGINT) : launched.send(SIGINT); };
  interrupt();
  launched.wait_for_all("took SIG");
  interrupt();
  const Outcome outcome = launched.end(kAtOnceSeconds);
  INFO(outcome.err);
  CHECK(outcome.exit_code == 1);
  CHECK_THAT(outcome.err, Contains("error: left at once on a second SIGINT"));
}

TEST_CASE("a terminal's single Ctrl-C is one request", "[dist][launch]") {
  Launched launched("saver");
  launched.send_to_all(SIGINT);
  const Outcome outcome = launched.end();
  CHECK(outcome.exit_code == kStopped);
  CHECK(count(outcome.err, "saved\n") == 2);
}

TEST_CASE("a second SIGINT to one rank brings the run down", "[dist][launch]") {
  Launched launched("stubborn", "saves", 1);
  launched.rank(0).send(SIGINT);
  launched.wait_for_all("took SIGINT");
  launched.rank(0).send(SIGINT);
  const Outcome outcome = launched.end(kAtOnceSeconds);
  CHECK(outcome.exit_code == 1);
  CHECK_THAT(outcome.err, Contains("rank 0 was killed by signal 2"));
}

TEST_CASE("the other ranks of one that stopped end by themselves", "[dist][launch]") {
  const bool fails = GENERATE(false, true);
  Launched launched(fails ? "slow_failing" : "slow");
  launched.send(SIGTERM);
  launched.wait_for_all("took SIGTERM");
  launched.wait_until_left(1);
  launched.rank(1).send(SIGUSR2);
  const Outcome outcome = launched.end();
  INFO(outcome.err);
  CHECK_THAT(outcome.err, Contains("[1] ends by itself"));
  CHECK(outcome.exit_code == (fails ? 3 : kStopped));
}

TEST_CASE("ranks that catch SIGTERM end without saving when another rank has failed", "[dist][launch]") {
  Launched launched("failing", "saves", 3);
  launched.rank(0).send(SIGUSR2);
  const Outcome outcome = launched.end(kGraceSeconds - 1);
  INFO(outcome.err);
  CHECK(outcome.exit_code == 2);
  CHECK_THAT(outcome.err, Contains("error: rank 0 failed with exit code 2:\nerror: a mistake"));
  CHECK(outcome.err.find("took") == std::string::npos);
  CHECK(outcome.err.find("saved") == std::string::npos);
}

}  // namespace stft::test
