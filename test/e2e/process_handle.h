// Processes that the test did not start itself: finding them, signalling them, waiting for their end.
#pragma once

#include <sys/types.h>

#include <vector>

namespace stft::test {

// A handle of a process that stays valid after its end: "gone" is an event, and the id cannot be mistaken for that of a
// later process.
class ProcessHandle {
 public:
  explicit ProcessHandle(pid_t pid);  // a process that is gone already is fine
  ~ProcessHandle();
  ProcessHandle(ProcessHandle&& other) noexcept;
  ProcessHandle& operator=(ProcessHandle&&) = delete;
  ProcessHandle(const ProcessHandle&) = delete;
  ProcessHandle& operator=(const ProcessHandle&) = delete;

  pid_t pid() const { return pid_; }
  int fd() const { return fd_; }              // readable once the process has ended; -1 when it had ended before
  void send(int signal_number) const;         // nothing happens when it is gone
  bool is_gone_within(double seconds) const;  // waits for its end

 private:
  pid_t pid_;
  int fd_;
};

struct RankProcess {
  ProcessHandle handle;
  int rank = -1;
};

// The children of a launcher that have a rank, in no order. Reads /proc.
std::vector<RankProcess> ranks_of(pid_t launcher);

}  // namespace stft::test
