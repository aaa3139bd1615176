#include "shard/strategy.h"

#include "base/error.h"

namespace stft::shard {

MeshShape mesh_shape(const ShardConfig& config, int64_t ranks, int64_t ranks_per_machine) {
  STFT_CHECK(config.strategy != Strategy::kAuto, "the strategy is chosen before the mesh is made");
  MeshShape shape;
  switch (config.strategy) {
    case Strategy::kNoShard:
      shape.shard = 1;
      break;
    case Strategy::kHybridShard:
      shape.shard = config.hybrid_shard_size.value_or(ranks_per_machine);
      break;
    default:
      shape.shard = ranks;
      break;
  }
  STFT_CHECK(ranks % shape.shard == 0, "the ranks divide into shard groups");
  shape.replicate = ranks / shape.shard;
  // As many as shard are the whole group: that is what gathering again means anyway.
  const int64_t part = config.reshard_after_forward_size.value_or(1);
  shape.part = part < shape.shard ? part : 1;
  STFT_CHECK(shape.shard % shape.part == 0, "a shard group divides into parts");
  return shape;
}

Strategy choose_strategy(const ModelBytes& bytes, int64_t ranks, int64_t memory_per_rank) {
  const int64_t budget = memory_per_rank / 2;
  const int64_t states = bytes.parameters + bytes.gradients + bytes.optimizer;
  if (ranks == 1 || states <= budget) {
    return Strategy::kNoShard;
  }
  return states / ranks + bytes.gathered <= budget ? Strategy::kShardGradOp : Strategy::kFullShard;
}

}  // namespace stft::shard
