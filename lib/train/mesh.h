// The process groups of a run.
#pragma once

#include <memory>

#include "dist/launch_config.h"
#include "dist/process_group.h"
#include "dist/rank_environment.h"
#include "shard/strategy.h"

namespace stft::train {

// Every rank is in `world`. Parameters are cut over shard() and copied over replicate(): full_shard cuts over the
// world, no_shard copies over it, hybrid_shard does both.
class Mesh {
 public:
  // Collective: makes the groups of `shape`, whose sizes multiply to the world's.
  Mesh(std::unique_ptr<dist::ProcessGroup> world, const shard::MeshShape& shape);

  dist::ProcessGroup& world() { return *world_; }
  dist::ProcessGroup& shard() { return *shard_; }
  dist::ProcessGroup& replicate() { return *replicate_; }
  // Of the ranks that keep a gathered copy between them; null: none do.
  dist::ProcessGroup* part() { return part_.get(); }

  // This rank's collectives so far, in all groups.
  dist::CollectiveCounts counts() const;

 private:
  std::unique_ptr<dist::ProcessGroup> world_;
  std::unique_ptr<dist::ProcessGroup> own_shard_, own_replicate_;  // null where it is the world
  std::unique_ptr<dist::ProcessGroup> part_;
  dist::ProcessGroup* shard_;
  dist::ProcessGroup* replicate_;
};

// Collective: joins the ranks that `info` tells of.
std::unique_ptr<dist::ProcessGroup> join_world(const dist::RankInfo& info, const dist::LaunchConfig& launch);

}  // namespace stft::train
