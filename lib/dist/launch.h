// Ranks as processes: who am I, and starting and supervising the ranks of one machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stft::dist {

// This process's place in the job.
struct RankInfo {
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t local_rank = 0;
  int64_t local_world_size = 1;
  std::string master_host = "127.0.0.1";
  uint16_t master_port = 0;
  bool hosts_store = false;             // this rank serves the rendezvous (rank 0, unless torchrun's agent does)
  std::optional<int> listen_fd;         // rank 0 of the launcher: the socket of the rendezvous
  std::optional<int64_t> launcher_pid;  // a child of our own launcher
  bool parent_is_terminal = false;
};

// From the environment that our launcher or torchrun (RANK, WORLD_SIZE, ...), Open MPI's mpirun (OMPI_COMM_WORLD_RANK,
// ...) or srun (SLURM_PROCID, SLURM_STEP_NUM_TASKS, ...) set, with MASTER_ADDR and MASTER_PORT for more than one rank;
// none when this process was started by hand. Throws UserError when only a part is set, a value is no number, or the
// ranks are on several machines.
std::optional<RankInfo> rank_from_environment();

struct LaunchPlan {
  std::vector<std::string> arguments;  // argv[1..] of every rank
  int64_t nproc = 1;
  int64_t threads_per_rank = 1;
};

// Starts `nproc` copies of this executable, prefixes what they write to standard error with their rank (when there are
// several), passes rank 0's standard output through, forwards SIGINT and SIGTERM. When a rank fails the others get
// SIGTERM and 5 s later SIGKILL; the first failing rank is named last, with its last message; failed collectives count
// only when no rank failed by itself. Returns that rank's exit code (1 when a signal killed it or a collective failed),
// else 0. Throws SystemError when a process cannot be started.
int launch(const LaunchPlan& plan);

// In a rank of our own launcher: takes the name "stft" and ends when the launcher ends, however it ends.
void join_launcher(int64_t launcher_pid);

// How a rank tells its launcher that it failed by a CollectiveError: the launcher then waits a moment for a rank that
// failed by itself, and returns 1.
inline constexpr int kCollectiveExitCode = 76;

}  // namespace stft::dist
