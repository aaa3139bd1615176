// A program to launch: its ranks do nothing but answer signals.
//   launch_helper NPROC (saves | dies) MODE
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "dist/launch.h"
#include "dist/rank_environment.h"
#include "dist/stop_signals.h"

namespace {

using namespace stft;

void say(const std::string& text) {
  const std::string line = text + "\n";
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) {
    ::_exit(4);
  }
}

void pause_a_little() {
  ::poll(nullptr, 0, 5);
}

void wait_until_pending() {
  for (;;) {
    sigset_t pending;
    ::sigpending(&pending);
    for (const int number : dist::kStopSignals) {
      if (sigismember(&pending, number) == 1) {
        return;
      }
    }
    pause_a_little();
  }
}

void wait_for_stop() {
  while (!dist::stop_requested()) {
    pause_a_little();
  }
  say(std::string("took ") + dist::stop_signal_name(*dist::stop_signal()));
}

[[noreturn]] void wait_for_ever() {
  for (;;) {
    ::pause();
  }
}

sigset_t block_the_tests_signal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR2);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

int run_rank(const dist::RankInfo& info, const std::string& mode) {
  const sigset_t tests_signal = block_the_tests_signal();
  const auto wait_for_the_test = [&] { ::sigwaitinfo(&tests_signal, nullptr); };
  if (mode == "late_saver" || mode == "late_plain") {
    say("up");
    wait_until_pending();
  }
  if (mode != "plain" && mode != "late_plain") {
    dist::catch_stop_signals();
  }
  if (mode == "late_saver") {
    return dist::stop_requested() ? dist::kStoppedExitCode : 3;
  }
  dist::join_launcher(*info.launcher_pid);
  say("up");
  if (mode == "plain" || mode == "late_plain") {
    wait_for_ever();
  }
  if (mode == "failing" && info.rank == 0) {
    wait_for_the_test();
    say("error: a mistake");
    return 2;
  }
  wait_for_stop();
  if (mode == "stubborn") {
    wait_for_ever();
  }
  if (info.rank == 1 && (mode == "slow" || mode == "slow_failing")) {
    wait_for_the_test();
    say("ends by itself");
    return mode == "slow" ? dist::kStoppedExitCode : 3;
  }
  say("saved");
  return dist::kStoppedExitCode;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (const auto info = dist::rank_from_environment()) {
    return run_rank(*info, arguments.at(2));
  }
  ::setpgid(0, 0);  // so that a test can do to all what a terminal's Ctrl-C does
  return dist::launch({arguments, std::stol(arguments.at(0)), 1, arguments.at(1) == "saves"});
}
