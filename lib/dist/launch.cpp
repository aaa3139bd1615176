#include "dist/launch.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "dist/rank_output.h"

extern char** environ;

namespace stft::dist {
namespace {

constexpr double kGraceSeconds = 5.0;
constexpr double kEchoSeconds = 1.0;  // how long a failed collective may wait for its cause to show
constexpr const char* kLaunchedKey = "STFT_LAUNCHED";
constexpr const char* kListenFdKey = "STFT_LISTEN_FD";
constexpr const char* kTerminalKey = "STFT_TERMINAL";

std::optional<int64_t> number_from_environment(const char* key) {
  const char* text = std::getenv(key);
  if (text == nullptr) {
    return std::nullopt;
  }
  int64_t value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < 0) {
    throw UserError(fmt::format("environment variable {}: expected a number, found \"{}\"", key, text));
  }
  return value;
}

struct Listener {
  int fd = -1;
  uint16_t port = 0;
};

// A socket on a free loopback port, handed to rank 0, so that no other process can take the port in between.
Listener listen_on_loopback() {
  Listener listener;
  listener.fd = ::socket(AF_INET, SOCK_STREAM, 0);
  if (listener.fd < 0) {
    throw_errno("socket", "rendezvous", errno);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (::bind(listener.fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(listener.fd, 128) != 0 ||
      ::getsockname(listener.fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw_errno("listen", "rendezvous on 127.0.0.1", errno);
  }
  listener.port = ntohs(address.sin_port);
  return listener;
}

struct Child {
  pid_t pid = -1;
  bool is_running = false;
  int status = 0;
  RankOutput output;
};

std::vector<std::string> child_environment(const LaunchPlan& plan, int64_t rank, const Listener& listener) {
  std::vector<std::string> result;
  const std::array<std::string, 11> ours = {
      "OMP_WAIT_POLICY=", "RANK=",          "WORLD_SIZE=",     "LOCAL_RANK=",    "LOCAL_WORLD_SIZE=", "MASTER_ADDR=",
      "MASTER_PORT=",     "STFT_LAUNCHED=", "STFT_LISTEN_FD=", "STFT_TERMINAL=", "OMP_NUM_THREADS="};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    bool is_ours = false;
    for (const auto& key : ours) {
      is_ours = is_ours || text.starts_with(key);
    }
    if (!is_ours) {
      result.push_back(text);
    }
  }
  result.push_back(fmt::format("RANK={}", rank));
  result.push_back(fmt::format("WORLD_SIZE={}", plan.nproc));
  result.push_back(fmt::format("LOCAL_RANK={}", rank));
  result.push_back(fmt::format("LOCAL_WORLD_SIZE={}", plan.nproc));
  result.push_back("MASTER_ADDR=127.0.0.1");
  result.push_back(fmt::format("MASTER_PORT={}", listener.port));
  result.push_back(fmt::format("OMP_NUM_THREADS={}", plan.threads_per_rank));
  // Threads that spin at barriers starve whoever shares the cores with them.
  const char* wait_policy = std::getenv("OMP_WAIT_POLICY");
  result.push_back(fmt::format("OMP_WAIT_POLICY={}", wait_policy != nullptr ? wait_policy : "passive"));
  result.push_back(fmt::format("{}={}", kLaunchedKey, ::getpid()));
  if (rank == 0) {
    result.push_back(fmt::format("{}={}", kListenFdKey, listener.fd));
  }
  if (::isatty(STDERR_FILENO) != 0) {
    result.push_back(fmt::format("{}=1", kTerminalKey));
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) {
    result.push_back(text.data());
  }
  result.push_back(nullptr);
  return result;
}

Child start(const LaunchPlan& plan, int64_t rank, const Listener& listener) {
  std::array<int, 2> pipe_fds{};
  if (::pipe2(pipe_fds.data(), O_CLOEXEC) != 0) {
    throw_errno("pipe", fmt::format("rank {}", rank), errno);
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDERR_FILENO);
  if (rank != 0) {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addclose(&actions, listener.fd);
  }
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);

  std::vector<std::string> arguments = {"stft"};
  arguments.insert(arguments.end(), plan.arguments.begin(), plan.arguments.end());
  auto environment = child_environment(plan, rank, listener);
  Child child;
  const int error = ::posix_spawn(&child.pid, "/proc/self/exe", &actions, &attributes, pointers(arguments).data(),
                                  pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(pipe_fds[1]);
  if (error != 0) {
    throw_errno("starting a rank: posix_spawn", "/proc/self/exe", error);
  }
  child.is_running = true;
  child.output = RankOutput(pipe_fds[0], plan.nproc > 1 ? fmt::format("[{}] ", rank) : "");
  return child;
}

void signal_all(const std::vector<Child>& children, int signal_number) {
  for (const auto& child : children) {
    if (child.is_running) {
      ::kill(child.pid, signal_number);
    }
  }
}

bool has_failed(const Child& child) {
  return !child.is_running && !(WIFEXITED(child.status) && WEXITSTATUS(child.status) == 0);
}

bool any_running(const std::vector<Child>& children) {
  for (const auto& child : children) {
    if (child.is_running) {
      return true;
    }
  }
  return false;
}

// How likely a failure is the cause of the others: death by a signal, then an error of the rank's own, then a failed
// collective.
int severity(const Child& child) {
  if (WIFSIGNALED(child.status)) {
    return 2;
  }
  return WEXITSTATUS(child.status) == kCollectiveExitCode ? 0 : 1;
}

int report(const Child& child, size_t rank) {
  if (WIFSIGNALED(child.status)) {
    const int number = WTERMSIG(child.status);
    write_line(fmt::format("error: rank {} was killed by signal {} ({})", rank, number, ::strsignal(number)));
    return 1;
  }
  const int code = WEXITSTATUS(child.status) == kCollectiveExitCode ? 1 : WEXITSTATUS(child.status);
  const std::string& message = child.output.last_error();
  write_line(fmt::format("error: rank {} failed with exit code {}{}", rank, code, message.empty() ? "" : ":"));
  if (!message.empty()) {
    write_line(message);
  }
  return code;
}

// Waits for output, signals and deaths until no rank is left.
class Supervisor {
 public:
  Supervisor(std::vector<Child> children, int signal_fd) : children_(std::move(children)), signal_fd_(signal_fd) {}

  int run() {
    while (any_running(children_)) {
      wait_for_events();
      reap();
      act_on_time();
    }
    for (auto& child : children_) {
      child.output.drain();
    }
    if (!first_failed_) {
      return 0;
    }
    show_other_messages();
    return report(children_[*first_failed_], *first_failed_);
  }

 private:
  void reap() {
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

  void act_on_time() {
    const double now = monotonic_seconds();
    if (stop_at_ && now >= *stop_at_) {
      stop_at_.reset();
      is_stopping_ = true;
      signal_all(children_, SIGTERM);
      kill_at_ = now + kGraceSeconds;
    }
    if (kill_at_ && now >= *kill_at_) {
      signal_all(children_, SIGKILL);
      kill_at_.reset();
    }
  }

  // Other ranks' errors, unless they say what the first one says or only echo it.
  void show_other_messages() const {
    const std::string& first = children_[*first_failed_].output.last_error();
    for (size_t rank = 0; rank < children_.size(); ++rank) {
      const Child& child = children_[rank];
      const bool is_echo = WIFEXITED(child.status) && WEXITSTATUS(child.status) == kCollectiveExitCode;
      const std::string& message = child.output.last_error();
      if (rank != *first_failed_ && !is_echo && !message.empty() && message != first) {
        write_line(fmt::format("[{}] {}", rank, message));
      }
    }
  }

  void wait_for_events() {
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
      signalfd_siginfo info{};
      while (::read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo != SIGCHLD) {
          signal_all(children_, static_cast<int>(info.ssi_signo));
        }
      }
    }
  }

  std::vector<Child> children_;
  int signal_fd_;
  std::optional<size_t> first_failed_;
  std::optional<double> stop_at_;  // when to stop the ranks that still run
  std::optional<double> kill_at_;
  bool is_stopping_ = false;  // deaths from now on are our doing
};

void read_rendezvous(RankInfo& info) {
  if (info.world_size > 1) {
    const char* host = std::getenv("MASTER_ADDR");
    const auto port = number_from_environment("MASTER_PORT");
    if (host == nullptr || !port || *port == 0 || *port > 65535) {
      throw UserError("environment: more than one rank needs MASTER_ADDR and MASTER_PORT (1 to 65535)");
    }
    info.master_host = host;
    info.master_port = static_cast<uint16_t>(*port);
  }
  if (const auto fd = number_from_environment(kListenFdKey)) {
    info.listen_fd = static_cast<int>(*fd);
  }
  const char* agent_store = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  info.hosts_store = info.rank == 0 && !(agent_store != nullptr && std::string_view(agent_store) == "True");
  info.launcher_pid = number_from_environment(kLaunchedKey);
  info.parent_is_terminal = std::getenv(kTerminalKey) != nullptr;
}

}  // namespace

std::optional<RankInfo> rank_from_environment() {
  struct Scheme {
    const char* rank;
    const char* world_size;
    const char* local_rank;
    const char* local_world_size;
  };
  // torchrun and our launcher, Open MPI, srun (the step's variables: a batch script has the others too).
  constexpr std::array<Scheme, 3> kSchemes = {{
      {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr},
  }};
  for (const Scheme& scheme : kSchemes) {
    const auto world_size = number_from_environment(scheme.world_size);
    const auto rank = number_from_environment(scheme.rank);
    // An interactive srun step of one task is a place to start ranks from, not a rank.
    const bool is_slurm = scheme.local_world_size == nullptr;
    if ((!world_size && !rank) || (is_slurm && world_size.value_or(1) <= 1)) {
      continue;
    }
    if (!rank || !world_size || *rank >= *world_size) {
      throw UserError(fmt::format("environment: {} and {} must both be set, with the first below the second",
                                  scheme.rank, scheme.world_size));
    }
    RankInfo info;
    info.rank = *rank;
    info.world_size = *world_size;
    info.local_rank = number_from_environment(scheme.local_rank).value_or(*rank);
    info.local_world_size =
        is_slurm ? *world_size / std::max<int64_t>(1, number_from_environment("SLURM_STEP_NUM_NODES").value_or(1))
                 : number_from_environment(scheme.local_world_size).value_or(*world_size);
    if (info.local_world_size != info.world_size) {
      throw UserError(
          fmt::format("environment: {} of {} ranks are on this machine: ranks on several machines are not "
                      "available yet",
                      info.local_world_size, info.world_size));
    }
    read_rendezvous(info);
    return info;
  }
  return std::nullopt;
}

int launch(const LaunchPlan& plan) {
  STFT_CHECK(plan.nproc >= 1, "no ranks to launch");
  sigset_t watched;
  sigemptyset(&watched);
  for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGUSR1}) {
    sigaddset(&watched, number);
  }
  ::sigprocmask(SIG_BLOCK, &watched, nullptr);
  const int signal_fd = ::signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC);
  if (signal_fd < 0) {
    throw_errno("signalfd", "launcher", errno);
  }
  const Listener listener = listen_on_loopback();
  std::vector<Child> children;
  for (int64_t rank = 0; rank < plan.nproc; ++rank) {
    try {
      children.push_back(start(plan, rank, listener));
    } catch (...) {
      signal_all(children, SIGKILL);
      throw;
    }
  }
  ::close(listener.fd);
  return Supervisor(std::move(children), signal_fd).run();
}

void join_launcher(int64_t launcher_pid) {
  ::prctl(PR_SET_NAME, "stft");  // /proc/self/exe would name it "exe"
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != static_cast<pid_t>(launcher_pid)) {
    ::raise(SIGKILL);  // the launcher went away before the line above
  }
}

}  // namespace stft::dist
