// The process groups of a run.
#pragma once

#include <memory>

#include "dist/launch_config.h"
#include "dist/process_group.h"
#include "dist/rank_environment.h"
#include "shard/shard_config.h"

namespace stft::train {

// Every rank is in `world`. Parameters are cut over shard() and copied over replicate(): full_shard cuts over the
// world, no_shard copies over it.
class Mesh {
 public:
  // Collective: joins the ranks that `info` tells of.
  Mesh(const dist::RankInfo& info, const dist::LaunchConfig& launch, shard::Strategy strategy);

  // For ranks that are threads: takes a group that exists.
  Mesh(std::unique_ptr<dist::ProcessGroup> world, shard::Strategy strategy);

  dist::ProcessGroup& world() { return *world_; }
  dist::ProcessGroup& shard() { return is_sharded_ ? *world_ : *single_; }
  dist::ProcessGroup& replicate() { return is_sharded_ ? *single_ : *world_; }

 private:
  std::unique_ptr<dist::ProcessGroup> world_;
  std::unique_ptr<dist::ProcessGroup> single_;
  bool is_sharded_;
};

}  // namespace stft::train
