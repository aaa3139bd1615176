// What the engine keeps in memory on one rank.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shard/shard_group.h"

namespace stft::shard {

// Bytes of this rank, padding included. Not in it: the gradients of the units whose reduction is under way (whole, and
// packed for the wire; at most three units), and activations.
struct MemoryUse {
  int64_t parameters = 0;  // shards
  int64_t gradients = 0;   // what is kept of them between backward and update
  // Gathered leaves and the buffers they pass through, at the peak of a training step. (An evaluation has all leaves.)
  int64_t gathers = 0;
};

// What is done with a unit's leaves after its forward, when its backward will come.
enum class AfterForward {
  kFree,      // gathered again for the backward
  kKeep,      // until their last backward
  kKeepPart,  // gathered again from a part of the ranks
};

struct UnitGroups {
  size_t first_group = 0;
  size_t end_group = 0;
  bool is_read_by_backward = true;
};

struct GatherSchedule {
  AfterForward after_forward = AfterForward::kFree;
  int64_t prefetch = 1;
  int64_t part = 1;  // ranks that keep one gathered copy between them
};

// The peak of `gathers` in one forward and backward, from the sizes alone.
int64_t planned_gathers(const std::vector<std::unique_ptr<ShardGroup>>& groups, const std::vector<UnitGroups>& units,
                        const GatherSchedule& schedule);

}  // namespace stft::shard
