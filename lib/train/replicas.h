// Do the ranks that hold the same rows hold the same values?
#pragma once

#include <cstdint>
#include <string>

#include "shard/shard_engine.h"
#include "train/mesh.h"

namespace stft::train {

// Collective: the engine's parameters_checksum(), compared between the copies of the model; with one copy there is
// nothing to compare. SystemError, the same on all ranks, naming the ranks whose copy is not rank 0's; `when` says at
// what point of the run ("before saving checkpoint-50").
uint64_t checked_checksum(shard::ShardEngine& engine, Mesh& mesh, const std::string& when);

// Collective: for where the checksum itself is not wanted; computes none with one copy.
void check_replicas(shard::ShardEngine& engine, Mesh& mesh, const std::string& when);

}  // namespace stft::train
