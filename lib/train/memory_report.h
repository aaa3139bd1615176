// What the ranks of a run keep in memory, for its log.
#pragma once

#include <cstdint>

#include "train/run.h"
#include "train/run_log.h"

namespace stft::train {

// Collective: {"parameters_bytes": [of rank 0, ...], "gradients_bytes", "optimizer_bytes", "gathers_bytes"} as the
// sizes say (shard::MemoryUse; the optimizer's moments).
IntegerLists planned_memory(Run& run);

// Collective: the same as the tensors had it so far, and "peak_resident_bytes" of the processes.
IntegerLists measured_memory(Run& run);

}  // namespace stft::train
