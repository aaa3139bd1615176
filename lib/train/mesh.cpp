#include "train/mesh.h"

#include <fmt/format.h>

#include <array>
#include <utility>
#include <vector>

#include "base/error.h"
#include "dist/rendezvous.h"

namespace stft::train {
namespace {

// `count` ranks from `first` on, `stride` apart.
std::vector<int64_t> rank_list(int64_t first, int64_t count, int64_t stride) {
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < count; ++i) {
    ranks.push_back(first + i * stride);
  }
  return ranks;
}

}  // namespace

// All ranks make the groups in the same order.
Mesh::Mesh(std::unique_ptr<dist::ProcessGroup> world, const shard::MeshShape& shape) : world_(std::move(world)) {
  const int64_t size = world_->size();
  const int64_t rank = world_->rank();
  STFT_CHECK(shape.shard * shape.replicate == size, "the mesh has as many places as there are ranks");
  const int64_t copy = rank / shape.shard;
  const int64_t place = rank % shape.shard;
  if (shape.shard != size) {
    own_shard_ = world_->subgroup(fmt::format("shard-{}", copy), rank_list(copy * shape.shard, shape.shard, 1));
  }
  if (shape.replicate != size || size == 1) {
    own_replicate_ =
        world_->subgroup(fmt::format("replicate-{}", place), rank_list(place, shape.replicate, shape.shard));
  }
  if (shape.part > 1) {
    const int64_t first = rank / shape.part * shape.part;
    part_ = world_->subgroup(fmt::format("part-{}", first), rank_list(first, shape.part, 1));
  }
  shard_ = own_shard_ ? own_shard_.get() : world_.get();
  replicate_ = own_replicate_ ? own_replicate_.get() : world_.get();
}

dist::CollectiveCounts Mesh::counts() const {
  dist::CollectiveCounts sum;
  for (const dist::ProcessGroup* group :
       std::array{world_.get(), own_shard_.get(), own_replicate_.get(), part_.get()}) {
    if (group != nullptr) {
      sum += group->counts();
    }
  }
  return sum;
}

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
  const auto rendezvous = dist::Rendezvous::tcp(store);
  rendezvous.agree_on_size(info.rank, info.world_size);
  return dist::ProcessGroup::over_gloo(rendezvous, options);
}

}  // namespace stft::train
