// From the recipe's strategy to how many ranks cut and how many copy the parameters.
#pragma once

#include <cstdint>

#include "shard/shard_config.h"

namespace stft::shard {

// Rank i * shard + j of the world holds the j-th part of the i-th copy.
struct MeshShape {
  int64_t shard = 1;      // ranks that cut the parameters between them: neighbours
  int64_t replicate = 1;  // copies
  int64_t part = 1;       // neighbours that keep a gathered copy between forward and backward; 1: none
};

// The shape on `ranks` ranks, `ranks_per_machine` of them on each machine, for every strategy but kAuto
// (choose_strategy first). InternalError for sizes that do not divide; the recipe is checked for them before.
MeshShape mesh_shape(const ShardConfig& config, int64_t ranks, int64_t ranks_per_machine);

// What a rank would have to keep, in bytes, were nothing sharded.
struct ModelBytes {
  int64_t parameters = 0;  // fp32
  int64_t gathered = 0;    // as they are computed with
  int64_t gradients = 0;   // fp32
  int64_t optimizer = 0;
};

// What kAuto means: the first of no_shard, shard_grad_op and full_shard whose states take at most half of
// `memory_per_rank` bytes (activations and buffers need the rest); full_shard when none does. Fewer collectives come
// first. One rank: no_shard. Depends on its arguments alone, so give it what all ranks agree on.
Strategy choose_strategy(const ModelBytes& bytes, int64_t ranks, int64_t memory_per_rank);

}  // namespace stft::shard
