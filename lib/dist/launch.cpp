#include "dist/launch.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "dist/launch_keys.h"
#include "dist/rank_output.h"
#include "dist/stop_signals.h"
#include "dist/supervisor.h"

extern char** environ;

namespace stft::dist {
namespace {

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
  // A stop signal that comes before the rank has said what it does with it stays pending.
  const sigset_t stop_signals = stop_signal_set();
  posix_spawnattr_setsigmask(&attributes, &stop_signals);
  posix_spawnattr_setsigdefault(&attributes, &stop_signals);  // a shell's background job ignores SIGINT
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

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

}  // namespace

int launch(const LaunchPlan& plan) {
  STFT_CHECK(plan.nproc >= 1, "no ranks to launch");
  sigset_t watched = stop_signal_set();
  sigaddset(&watched, SIGCHLD);
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
  return Supervisor(std::move(children), signal_fd, plan.saves_on_stop).run();
}

void join_launcher(int64_t launcher_pid) {
  ::prctl(PR_SET_NAME, "stft");  // /proc/self/exe would name it "exe"
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != static_cast<pid_t>(launcher_pid)) {
    ::raise(SIGKILL);  // the launcher went away before the line above
  }
  unblock_stop_signals();
}

}  // namespace stft::dist
