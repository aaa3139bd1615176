// What the collectives of a run cost.
#pragma once

#include "dist/process_group.h"
#include "train/mesh.h"

namespace stft::train {

// Of all groups of the mesh so far, on this rank. A group of one communicates nothing.
dist::CollectiveCounts mesh_counts(Mesh& mesh);

// What came between two such counts.
dist::CollectiveCounts counts_between(const dist::CollectiveCounts& before, const dist::CollectiveCounts& after);

}  // namespace stft::train
