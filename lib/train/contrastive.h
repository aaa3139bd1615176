// From this rank's embeddings of a global micro-batch to its part of the loss.
#pragma once

#include <ATen/core/Tensor.h>

#include "data/batch_loader.h"
#include "dist/process_group.h"

namespace stft::train {

// Collective over `world`: gathers the documents of all ranks with gradient and ranks this rank's anchors among them.
// `embeddings_ND` has one row a text of `batch`. Candidates are in the order of the global micro-batch (positives of
// all rows, then first negatives, ...), whatever the number of ranks. The parts of all ranks sum to the loss.
at::Tensor ranking_loss(const data::LocalMicroBatch& batch, const at::Tensor& embeddings_ND, double scale,
                        dist::ProcessGroup& world);

}  // namespace stft::train
