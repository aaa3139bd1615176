// Ranks as processes: starting and supervising those of one machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stft::dist {

struct LaunchPlan {
  std::vector<std::string> arguments;  // argv[1..] of every rank
  int64_t nproc = 1;
  int64_t threads_per_rank = 1;
  bool saves_on_stop = false;  // the ranks call catch_stop_signals(), save their state and exit with kStoppedExitCode
};

// Starts `nproc` copies of this executable, prefixes what they write to standard error with their rank (when there are
// several) and passes rank 0's standard output through. Ranks start with the stop signals of stop_signals.h blocked.
//
// Failures: when a rank fails the others get SIGTERM (end_after_failure) and 5 s later SIGKILL; the first failing rank
// is named last, with its last message; failed collectives count only when no rank failed by itself. Returns that
// rank's exit code (1 when a signal killed it or a collective failed).
//
// Stop signals are passed on to all ranks; with `saves_on_stop` SIGINT becomes SIGTERM, and a line says that the run is
// stopping. A rank that exits with kStoppedExitCode has not failed, and the others are left to end by themselves. A
// second SIGINT kills all ranks: returns 1.
//
// Else returns kStoppedExitCode when a rank did, or 0. Throws SystemError when a process cannot be started.
int launch(const LaunchPlan& plan);

// In a rank of our own launcher: takes the name "stft", ends when the launcher ends, however it ends, and receives stop
// signals again. Call it first, or second to catch_stop_signals() in a rank that saves its state when asked to stop.
void join_launcher(int64_t launcher_pid);

// A run that stopped on a signal, after a complete checkpoint was saved.
inline constexpr int kStoppedExitCode = 75;

// How a rank tells its launcher that it failed by a CollectiveError: the launcher then waits a moment for a rank that
// failed by itself, and returns 1.
inline constexpr int kCollectiveExitCode = 76;

}  // namespace stft::dist
