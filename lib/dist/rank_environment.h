// Which rank is this process?
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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

}  // namespace stft::dist
