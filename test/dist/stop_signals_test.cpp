#include "dist/stop_signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <functional>
#include <thread>

namespace stft::test {
namespace {

using namespace dist;

// What is caught stays caught for the life of a process, so each case has one of its own. Returns its wait status.
int run_forked(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    ::alarm(20);
    ::_exit(body());
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return status;
}

bool is_true(const std::function<bool()>& body) {
  const int status = run_forked([&] { return body() ? 0 : 1; });
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("a stop signal is remembered, and the first one is named", "[dist][signals]") {
  const int number = GENERATE(SIGTERM, SIGUSR1, SIGINT);
  CHECK(is_true([&] {
    catch_stop_signals();
    const bool was_quiet = !stop_requested() && !stop_signal();
    ::raise(number);
    const bool is_first = stop_requested() && stop_signal() == number;
    ::raise(number == SIGTERM ? SIGUSR1 : SIGTERM);
    return was_quiet && is_first && stop_signal() == number;
  }));
}

TEST_CASE("a stop signal that was pending is seen once signals are caught", "[dist][signals]") {
  const int number = GENERATE(SIGTERM, SIGUSR1, SIGINT);
  CHECK(is_true([&] {
    const sigset_t signals = stop_signal_set();
    ::sigprocmask(SIG_BLOCK, &signals, nullptr);
    ::raise(number);
    catch_stop_signals();
    return stop_signal() == number;
  }));
}

TEST_CASE("any thread may take a stop signal", "[dist][signals]") {
  CHECK(is_true([] {
    catch_stop_signals();
    std::thread([] { ::raise(SIGUSR1); }).join();
    return stop_signal() == SIGUSR1;
  }));
}

TEST_CASE("a second SIGINT ends the process by it", "[dist][signals]") {
  const int status = run_forked([] {
    catch_stop_signals();
    ::raise(SIGINT);
    ::raise(SIGTERM);
    ::raise(SIGTERM);
    if (stop_signal() != SIGINT) {
      return 3;
    }
    ::raise(SIGINT);
    return 0;
  });
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGINT);
}

TEST_CASE("a SIGINT after another stop signal is the first one", "[dist][signals]") {
  CHECK(is_true([] {
    catch_stop_signals();
    ::raise(SIGTERM);
    ::raise(SIGINT);
    return stop_signal() == SIGTERM;
  }));
}

TEST_CASE("system calls go on after a stop signal", "[dist][signals]") {
  CHECK(is_true([] {
    catch_stop_signals();
    for (const int number : kStopSignals) {
      struct sigaction action {};
      ::sigaction(number, nullptr, &action);
      if ((action.sa_flags & SA_RESTART) == 0) {
        return false;
      }
    }
    return true;
  }));
}

TEST_CASE("the end after a failure is no request to stop", "[dist][signals]") {
  std::array<int, 2> fds{};
  REQUIRE(::pipe(fds.data()) == 0);
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    ::alarm(20);
    catch_stop_signals();
    const bool has_told = ::write(fds[1], "x", 1) == 1;
    while (has_told && !stop_requested()) {
      ::pause();
    }
    ::_exit(3);
  }
  char byte = 0;
  REQUIRE(::read(fds[0], &byte, 1) == 1);
  end_after_failure(pid);
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
  ::close(fds[0]);
  ::close(fds[1]);
}

TEST_CASE("only the parent can end a process as after a failure", "[dist][signals]") {
  CHECK(is_true([] {
    catch_stop_signals();
    end_after_failure(::getpid());
    return stop_signal() == SIGTERM;
  }));
}

}  // namespace stft::test
