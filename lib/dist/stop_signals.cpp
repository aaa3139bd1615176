#include "dist/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/error.h"

namespace stft::dist {
namespace {

constexpr int kFailureMark = 0x57f7;  // the value that comes with a SIGTERM of end_after_failure

// A signal handler can reach nothing but what lives as long as the process.
std::atomic<int> first_signal = 0;
std::atomic<bool> was_interrupted = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

// The signal is blocked while its handler runs: it ends the process when the handler returns.
void end_by(int signal_number) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal_number, &action, nullptr);
  ::raise(signal_number);
}

void change_mask(int how) {
  const sigset_t signals = stop_signal_set();
  if (const int error = ::pthread_sigmask(how, &signals, nullptr); error != 0) {
    throw_errno("pthread_sigmask", "stop signals", error);
  }
}

void on_stop_signal(int signal_number, siginfo_t* info, void*) {
  const int saved_errno = errno;
  const bool parent_ends_us = signal_number == SIGTERM && info->si_code == SI_QUEUE &&
                              info->si_value.sival_int == kFailureMark && info->si_pid == ::getppid();
  if (parent_ends_us || (signal_number == SIGINT && was_interrupted.exchange(true))) {
    end_by(signal_number);
  } else {
    int none = 0;
    first_signal.compare_exchange_strong(none, signal_number);
  }
  errno = saved_errno;
}

}  // namespace

sigset_t stop_signal_set() {
  sigset_t result;
  sigemptyset(&result);
  for (const int number : kStopSignals) {
    sigaddset(&result, number);
  }
  return result;
}

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_sigaction = on_stop_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;  // libraries' system calls go on as if nothing had come
  sigemptyset(&action.sa_mask);
  for (const int number : kStopSignals) {
    if (::sigaction(number, &action, nullptr) != 0) {
      throw_errno("sigaction", stop_signal_name(number), errno);
    }
  }
  unblock_stop_signals();
}

void hold_stop_signals() {
  change_mask(SIG_BLOCK);
}

void unblock_stop_signals() {
  change_mask(SIG_UNBLOCK);
}

bool stop_requested() {
  return first_signal.load(std::memory_order_relaxed) != 0;
}

std::optional<int> stop_signal() {
  const int number = first_signal.load(std::memory_order_relaxed);
  return number != 0 ? std::optional(number) : std::nullopt;
}

const char* stop_signal_name(int signal_number) {
  return signal_number == SIGTERM ? "SIGTERM" : signal_number == SIGUSR1 ? "SIGUSR1" : "SIGINT";
}

void end_after_failure(pid_t child) {
  sigval value{};
  value.sival_int = kFailureMark;
  if (::sigqueue(child, SIGTERM, value) != 0 && errno == EAGAIN) {
    ::kill(child, SIGTERM);
  }
}

}  // namespace stft::dist
