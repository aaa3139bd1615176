#include "e2e/process_handle.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

namespace stft::test {
namespace {

// Empty when the process is gone; a process may go between any two lines here.
std::string read_proc(pid_t pid, const char* name) {
  const int fd = ::open(("/proc/" + std::to_string(pid) + "/" + name).c_str(), O_RDONLY | O_CLOEXEC);
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n = 1; fd >= 0 && n > 0;) {
    n = ::read(fd, buffer.data(), buffer.size());
    text.append(buffer.data(), n > 0 ? static_cast<size_t>(n) : 0);
  }
  if (fd >= 0) {
    ::close(fd);
  }
  return text;
}

pid_t parent_of(pid_t pid) {
  const std::string stat = read_proc(pid, "stat");  // pid (name) state parent ...
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos ? -1 : static_cast<pid_t>(std::stol(stat.substr(name_end + 4)));
}

int rank_of(pid_t pid) {
  const std::string environment = std::string(1, '\0') + read_proc(pid, "environ");
  const std::string key = std::string(1, '\0') + "RANK=";
  const size_t at = environment.find(key);
  return at == std::string::npos ? -1 : std::stoi(environment.substr(at + key.size()));
}

}  // namespace

ProcessHandle::ProcessHandle(pid_t pid) : pid_(pid), fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {
  if (fd_ < 0 && errno != ESRCH) {
    throw std::system_error(errno, std::generic_category(), "pidfd_open");
  }
}

ProcessHandle::~ProcessHandle() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

ProcessHandle::ProcessHandle(ProcessHandle&& other) noexcept : pid_(other.pid_), fd_(std::exchange(other.fd_, -1)) {}

void ProcessHandle::send(int signal_number) const {
  if (fd_ >= 0) {
    ::syscall(SYS_pidfd_send_signal, fd_, signal_number, nullptr, 0);
  }
}

bool ProcessHandle::is_gone_within(double seconds) const {
  if (fd_ < 0) {
    return true;
  }
  pollfd event{fd_, POLLIN, 0};
  return ::poll(&event, 1, static_cast<int>(seconds * 1000)) == 1;
}

std::vector<RankProcess> ranks_of(pid_t launcher) {
  std::vector<RankProcess> ranks;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    const auto pid = static_cast<pid_t>(std::stol(name));
    if (parent_of(pid) != launcher) {
      continue;
    }
    ProcessHandle handle(pid);
    if (const int rank = rank_of(pid); rank >= 0) {
      ranks.push_back({std::move(handle), rank});
    }
  }
  return ranks;
}

}  // namespace stft::test
