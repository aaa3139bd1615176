// Do the ranks that hold the same rows hold the same values?
#pragma once

#include <string>

#include "shard/shard_engine.h"
#include "train/mesh.h"

namespace stft::train {

// Collective: compares checksums of the parameters between the copies of the model; with one copy there is nothing to
// compare. SystemError, the same on all ranks, naming the ranks whose copy is not rank 0's; `when` says at what point
// of the run ("before saving checkpoint-50").
void check_replicas(shard::ShardEngine& engine, Mesh& mesh, const std::string& when);

}  // namespace stft::train
