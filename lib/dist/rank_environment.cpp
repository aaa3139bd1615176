#include "dist/rank_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "dist/launch_keys.h"

namespace stft::dist {
namespace {

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

}  // namespace stft::dist
