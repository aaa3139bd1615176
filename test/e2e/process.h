// A spawned program whose output is collected while it runs. Every wait ends on an event or at a deadline.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "e2e/process_handle.h"

namespace stft::test {

struct Outcome {
  bool has_ended = false;  // false: still running at the deadline (it has been killed since)
  int exit_code = -1;      // -1 when a signal ended it
  int signal_number = 0;   // 0 when it exited by itself
  std::string out;
  std::string err;
  double seconds = 0;              // from the start to the end
  double peak_resident_bytes = 0;  // of the program, without its children; at least this process's at the start
};

struct Command {
  std::vector<std::string> arguments;         // after the program's name
  std::string input;                          // its standard input
  bool has_terminal = false;                  // standard error is a terminal (its bytes come back in Outcome::err)
  std::vector<std::string> environment = {};  // "NAME=value", beside what is inherited
  std::string program = {};                   // its path; empty: the executable under test
};

// A program, as a rule the executable under test, started in the root of the repository. Destroyed while it runs, it is
// killed.
class Process {
 public:
  explicit Process(const Command& command);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return handle_.pid(); }
  const ProcessHandle& handle() const { return handle_; }
  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

  // Collects output until the condition holds (true), the process ends or the deadline passes. The condition is looked
  // at again after each piece of output.
  bool wait_until(const std::function<bool(const Process&)>& condition, double seconds);

  // Waits for the end and the rest of the output.
  Outcome wait(double seconds);

 private:
  struct Started {
    pid_t pid;
    int input_fd, out_fd, err_fd;
  };

  Process(const Command& command, const Started& started);
  static Started start(const Command& command);
  bool collect(int timeout_ms);  // false when nothing came within the timeout
  void feed_input();
  void reap();

  ProcessHandle handle_;
  std::string input_;
  int input_fd_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  bool is_reaped_ = false;
  int status_ = 0;
  double peak_resident_bytes_ = 0;
  double start_ = 0;
  std::string out_;
  std::string err_;
};

// Runs the executable to its end. A run past the deadline is killed and has has_ended == false.
Outcome run_stft(const Command& command, double seconds = 60);
Outcome run_stft(const std::vector<std::string>& arguments, double seconds = 60);

}  // namespace stft::test
