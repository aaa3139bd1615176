// Private to lib/dist: watching over the ranks that the launcher started.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "dist/rank_output.h"

namespace stft::dist {

struct Child {
  pid_t pid = -1;
  bool is_running = false;
  int status = 0;
  RankOutput output;
};

void signal_all(const std::vector<Child>& children, int signal_number);

// Waits for output, signals and deaths until no rank is left. What launch() promises about them is done here.
class Supervisor {
 public:
  // `signal_fd`: a non-blocking signalfd of SIGCHLD and the stop signals. `saves_on_stop`: see LaunchPlan.
  Supervisor(std::vector<Child> children, int signal_fd, bool saves_on_stop)
      : children_(std::move(children)), signal_fd_(signal_fd), saves_on_stop_(saves_on_stop) {}

  // The launcher's exit code. Throws SystemError when it cannot wait.
  int run();

 private:
  void wait_for_events();
  void take_signals();
  void pass_on_stop(int signal_number);
  void leave_at_once();
  void reap();
  void act_on_time();
  void show_other_messages() const;
  int conclude();

  std::vector<Child> children_;
  int signal_fd_;
  bool saves_on_stop_;
  std::optional<size_t> first_failed_;
  std::optional<double> stop_at_;  // when to stop the ranks that still run, since one has failed
  std::optional<double> kill_at_;
  bool is_stopping_ = false;  // deaths from now on are our doing
  bool was_stop_announced_ = false;
  bool was_interrupted_ = false;  // by a first SIGINT
  bool left_at_once_ = false;     // on a second one
};

}  // namespace stft::dist
