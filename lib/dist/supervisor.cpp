#include "dist/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "dist/launch.h"
#include "dist/stop_signals.h"

namespace stft::dist {
namespace {

constexpr double kGraceSeconds = 5.0;
constexpr double kEchoSeconds = 1.0;  // how long a failed collective may wait for its cause to show

bool has_exited_with(const Child& child, int code) {
  return !child.is_running && WIFEXITED(child.status) && WEXITSTATUS(child.status) == code;
}

bool has_failed(const Child& child) {
  return !child.is_running && !has_exited_with(child, 0) && !has_exited_with(child, kStoppedExitCode);
}

bool any_running(const std::vector<Child>& children) {
  return std::any_of(children.begin(), children.end(), [](const Child& child) { return child.is_running; });
}

bool was_killed(const Child& child) {
  return !child.is_running && WIFSIGNALED(child.status);
}

// How likely a failure is the cause of the others: death by a signal, then an error of the rank's own, then a failed
// collective.
int severity(const Child& child) {
  if (WIFSIGNALED(child.status)) {
    return 2;
  }
  return has_exited_with(child, kCollectiveExitCode) ? 0 : 1;
}

int report(const Child& child, size_t rank) {
  if (WIFSIGNALED(child.status)) {
    const int number = WTERMSIG(child.status);
    write_line(fmt::format("error: rank {} was killed by signal {} ({})", rank, number, ::strsignal(number)));
    return 1;
  }
  const int code = has_exited_with(child, kCollectiveExitCode) ? 1 : WEXITSTATUS(child.status);
  const std::string& message = child.output.last_error();
  write_line(fmt::format("error: rank {} failed with exit code {}{}", rank, code, message.empty() ? "" : ":"));
  if (!message.empty()) {
    write_line(message);
  }
  return code;
}

}  // namespace

void signal_all(const std::vector<Child>& children, int signal_number) {
  for (const auto& child : children) {
    if (child.is_running) {
      ::kill(child.pid, signal_number);
    }
  }
}

int Supervisor::run() {
  while (any_running(children_)) {
    wait_for_events();
    reap();
    act_on_time();
  }
  take_signals();  // a terminal's Ctrl-C that ended the last ranks came to us as well
  for (auto& child : children_) {
    child.output.drain();
  }
  return conclude();
}

int Supervisor::conclude() {
  if (first_failed_) {
    show_other_messages();
    return report(children_[*first_failed_], *first_failed_);
  }
  if (left_at_once_ && std::any_of(children_.begin(), children_.end(), was_killed)) {
    write_line("error: left at once on a second SIGINT; nothing more was saved");
    return 1;
  }
  const bool was_stopped = std::any_of(children_.begin(), children_.end(),
                                       [](const Child& child) { return has_exited_with(child, kStoppedExitCode); });
  return was_stopped ? kStoppedExitCode : 0;
}

void Supervisor::reap() {
  for (size_t rank = 0; rank < children_.size(); ++rank) {
    Child& child = children_[rank];
    if (!child.is_running || ::waitpid(child.pid, &child.status, WNOHANG) != child.pid) {
      continue;
    }
    child.is_running = false;
    if (!has_failed(child) || is_stopping_) {
      continue;
    }
    if (!first_failed_ || severity(child) > severity(children_[*first_failed_])) {
      first_failed_ = rank;
    }
    stop_at_ = severity(child) > 0 ? monotonic_seconds() : stop_at_.value_or(monotonic_seconds() + kEchoSeconds);
  }
}

void Supervisor::act_on_time() {
  const double now = monotonic_seconds();
  if (stop_at_ && now >= *stop_at_) {
    stop_at_.reset();
    is_stopping_ = true;
    for (const Child& child : children_) {
      if (child.is_running) {
        end_after_failure(child.pid);
      }
    }
    kill_at_ = now + kGraceSeconds;
  }
  if (kill_at_ && now >= *kill_at_) {
    signal_all(children_, SIGKILL);
    kill_at_.reset();
  }
}

// Other ranks' errors, unless they say what the first one says or only echo it.
void Supervisor::show_other_messages() const {
  const std::string& first = children_[*first_failed_].output.last_error();
  for (size_t rank = 0; rank < children_.size(); ++rank) {
    const Child& child = children_[rank];
    const std::string& message = child.output.last_error();
    if (rank != *first_failed_ && !has_exited_with(child, kCollectiveExitCode) && !message.empty() &&
        message != first) {
      write_line(fmt::format("[{}] {}", rank, message));
    }
  }
}

void Supervisor::wait_for_events() {
  std::vector<pollfd> fds = {{signal_fd_, POLLIN, 0}};
  for (const auto& child : children_) {
    fds.push_back({child.output.fd(), POLLIN, 0});
  }
  const int timeout_ms = stop_at_ || kill_at_ ? 50 : -1;
  if (::poll(fds.data(), fds.size(), timeout_ms) < 0 && errno != EINTR) {
    throw_errno("poll", "ranks", errno);
  }
  for (size_t i = 0; i < children_.size(); ++i) {
    if ((fds[i + 1].revents & (POLLIN | POLLHUP)) != 0) {
      children_[i].output.read_some();
    }
  }
  if ((fds[0].revents & POLLIN) != 0) {
    take_signals();
  }
}

void Supervisor::take_signals() {
  signalfd_siginfo info{};
  while (::read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGCHLD) {
      pass_on_stop(static_cast<int>(info.ssi_signo));
    }
  }
}

void Supervisor::pass_on_stop(int signal_number) {
  if (signal_number == SIGINT && was_interrupted_) {
    leave_at_once();
    return;
  }
  was_interrupted_ = was_interrupted_ || signal_number == SIGINT;
  if (!saves_on_stop_) {
    signal_all(children_, signal_number);
    return;
  }
  if (!was_stop_announced_ && !first_failed_ && any_running(children_)) {
    was_stop_announced_ = true;
    write_line(fmt::format("stopping: asked by {}; a checkpoint will be saved; a second Ctrl-C leaves at once",
                           stop_signal_name(signal_number)));
  }
  // A terminal's Ctrl-C has reached the ranks already, and a second SIGINT would tell them to leave at once.
  signal_all(children_, signal_number == SIGINT ? SIGTERM : signal_number);
}

void Supervisor::leave_at_once() {
  left_at_once_ = true;
  is_stopping_ = true;
  stop_at_.reset();
  // A rank that the terminal's second Ctrl-C reached before us has not failed.
  if (first_failed_ && was_killed(children_[*first_failed_]) && WTERMSIG(children_[*first_failed_].status) == SIGINT) {
    first_failed_.reset();
  }
  signal_all(children_, SIGKILL);
}

}  // namespace stft::dist
