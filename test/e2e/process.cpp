#include "e2e/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

extern char** environ;

namespace stft::test {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int milliseconds_until(double deadline) {
  return static_cast<int>(std::clamp((deadline - now()) * 1000 + 1, 0.0, 1.0e6));
}

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

Pipe open_pipe() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) {
    fail("pipe2");
  }
  return {fds[0], fds[1]};
}

// The read end is the terminal's master side.
Pipe open_terminal() {
  Pipe terminal;
  terminal.read_end = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  std::array<char, 128> name{};
  if (terminal.read_end < 0 || ::grantpt(terminal.read_end) != 0 || ::unlockpt(terminal.read_end) != 0 ||
      ::ptsname_r(terminal.read_end, name.data(), name.size()) != 0) {
    fail("posix_openpt");
  }
  terminal.write_end = ::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal.write_end < 0) {
    fail("opening the terminal");
  }
  return terminal;
}

void make_nonblocking(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void close_fd(int& fd) {
  if (fd >= 0) {
    ::close(std::exchange(fd, -1));
  }
}

// Our environment without what would make the program believe it is a rank or a user with settings of their own.
std::vector<std::string> clean_environment() {
  constexpr std::array<std::string_view, 15> kDropped = {"RANK=",
                                                         "WORLD_SIZE=",
                                                         "LOCAL_RANK=",
                                                         "LOCAL_WORLD_SIZE=",
                                                         "MASTER_ADDR=",
                                                         "MASTER_PORT=",
                                                         "TORCHELASTIC",
                                                         "OMPI_",
                                                         "SLURM_",
                                                         "STFT_",
                                                         "NO_COLOR=",
                                                         "HF_",
                                                         "HUGGING",
                                                         "TRANSFORMERS_",
                                                         "SENTENCE_TRANSFORMERS_"};
  std::vector<std::string> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const bool is_dropped =
        std::any_of(kDropped.begin(), kDropped.end(), [&](std::string_view key) { return text.starts_with(key); });
    if (!is_dropped) {
      kept.emplace_back(text);
    }
  }
  return kept;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) {
    result.push_back(text.data());
  }
  result.push_back(nullptr);
  return result;
}

struct Descriptors {
  int input = -1;
  int out = -1;
  int err = -1;
};

pid_t spawn(const Command& command, const Descriptors& fds) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, fds.input, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, fds.out, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, fds.err, STDERR_FILENO);
  ::posix_spawn_file_actions_addchdir_np(&actions, STFT_SOURCE_DIR);
  const std::string program = command.program.empty() ? STFT_EXECUTABLE : command.program;
  std::vector<std::string> arguments = {command.program.empty() ? "stft" : program};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  std::vector<std::string> environment = clean_environment();
  environment.insert(environment.end(), command.environment.begin(), command.environment.end());
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t defaults;
  ::sigemptyset(&defaults);
  ::sigaddset(&defaults, SIGPIPE);  // which this process ignores
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, program.c_str(), &actions, &attributes, pointers(arguments).data(),
                                  pointers(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    throw std::system_error(error, std::generic_category(), "posix_spawn " + program);
  }
  return pid;
}

// Appends what is there; closes the descriptor at its end.
void read_some(int& fd, std::string& text) {
  std::array<char, 65536> buffer;
  const ssize_t n = ::read(fd, buffer.data(), buffer.size());
  if (n > 0) {
    text.append(buffer.data(), static_cast<size_t>(n));
  } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {  // a terminal ends with EIO
    close_fd(fd);
  }
}

}  // namespace

Process::Process(const Command& command) : Process(command, start(command)) {}

Process::Process(const Command& command, const Started& started)
    : handle_(started.pid),
      input_(command.input),
      input_fd_(started.input_fd),
      out_fd_(started.out_fd),
      err_fd_(started.err_fd),
      start_(now()) {
  for (const int fd : {input_fd_, out_fd_, err_fd_}) {
    make_nonblocking(fd);
  }
  feed_input();
}

Process::Started Process::start(const Command& command) {
  ::signal(SIGPIPE, SIG_IGN);  // a program that does not read its input is no reason to die
  const Pipe input = open_pipe();
  const Pipe out = open_pipe();
  const Pipe err = command.has_terminal ? open_terminal() : open_pipe();
  const pid_t pid = spawn(command, {input.read_end, out.write_end, err.write_end});
  for (int fd : {input.read_end, out.write_end, err.write_end}) {
    close_fd(fd);
  }
  return {pid, input.write_end, out.read_end, err.read_end};
}

Process::~Process() {
  if (!is_reaped_) {
    const std::vector<RankProcess> ranks = ranks_of(pid());
    handle_.send(SIGKILL);
    for (const RankProcess& rank : ranks) {
      rank.handle.send(SIGKILL);
    }
    reap();
  }
  for (int* fd : {&input_fd_, &out_fd_, &err_fd_}) {
    close_fd(*fd);
  }
}

void Process::feed_input() {
  while (!input_.empty()) {
    const ssize_t n = ::write(input_fd_, input_.data(), input_.size());
    if (n < 0 && errno == EAGAIN) {
      return;
    }
    input_.erase(0, n < 0 ? input_.size() : static_cast<size_t>(n));
  }
  close_fd(input_fd_);
}

bool Process::collect(int timeout_ms) {
  std::array<pollfd, 4> events = {{{input_fd_, POLLOUT, 0},
                                   {out_fd_, POLLIN, 0},
                                   {err_fd_, POLLIN, 0},
                                   {is_reaped_ ? -1 : handle_.fd(), POLLIN, 0}}};
  if (::poll(events.data(), events.size(), timeout_ms) <= 0) {
    return false;
  }
  if (events[0].revents != 0) {
    feed_input();
  }
  if (events[1].revents != 0) {
    read_some(out_fd_, out_);
  }
  if (events[2].revents != 0) {
    read_some(err_fd_, err_);
  }
  if (events[3].revents != 0) {
    reap();
  }
  return true;
}

void Process::reap() {
  rusage usage{};
  while (::wait4(pid(), &status_, 0, &usage) < 0 && errno == EINTR) {
  }
  peak_resident_bytes_ = static_cast<double>(usage.ru_maxrss) * 1024;
  is_reaped_ = true;
}

bool Process::wait_until(const std::function<bool(const Process&)>& condition, double seconds) {
  const double deadline = now() + seconds;
  while (!condition(*this)) {
    if (now() >= deadline || (is_reaped_ && out_fd_ < 0 && err_fd_ < 0)) {
      return false;
    }
    collect(milliseconds_until(deadline));
  }
  return true;
}

Outcome Process::wait(double seconds) {
  Outcome outcome;
  wait_until([](const Process&) { return false; }, seconds);
  outcome.has_ended = is_reaped_;
  outcome.out = out_;
  outcome.err = err_;
  outcome.seconds = now() - start_;
  outcome.peak_resident_bytes = peak_resident_bytes_;
  if (is_reaped_ && WIFEXITED(status_)) {
    outcome.exit_code = WEXITSTATUS(status_);
  } else if (is_reaped_) {
    outcome.signal_number = WTERMSIG(status_);
  }
  return outcome;
}

Outcome run_stft(const Command& command, double seconds) {
  return Process(command).wait(seconds);
}

Outcome run_stft(const std::vector<std::string>& arguments, double seconds) {
  return run_stft(Command{arguments, {}, false, {}, {}}, seconds);
}

}  // namespace stft::test
