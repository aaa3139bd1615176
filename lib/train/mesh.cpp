#include "train/mesh.h"

#include <utility>

#include "dist/rendezvous.h"

namespace stft::train {
namespace {

// The ranks are on one machine and talk over loopback.
std::unique_ptr<dist::ProcessGroup> join_world(const dist::RankInfo& info, const dist::LaunchConfig& launch) {
  if (info.world_size == 1) {
    return dist::ProcessGroup::single();
  }
  dist::Rendezvous::TcpOptions store;
  store.host = info.master_host;
  store.port = info.master_port;
  store.is_server = info.hosts_store;
  store.world_size = info.world_size;
  store.timeout_s = launch.timeout_s;
  store.listen_fd = info.listen_fd;
  dist::ProcessGroup::Options options;
  options.name = "world";
  options.rank = info.rank;
  options.world_size = info.world_size;
  options.timeout_s = launch.timeout_s;
  return dist::ProcessGroup::over_gloo(dist::Rendezvous::tcp(store), options);
}

}  // namespace

Mesh::Mesh(const dist::RankInfo& info, const dist::LaunchConfig& launch, shard::Strategy strategy)
    : Mesh(join_world(info, launch), strategy) {}

Mesh::Mesh(std::unique_ptr<dist::ProcessGroup> world, shard::Strategy strategy)
    : world_(std::move(world)),
      single_(dist::ProcessGroup::single()),
      is_sharded_(strategy == shard::Strategy::kFullShard) {}

}  // namespace stft::train
