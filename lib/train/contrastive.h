// MultipleNegativesRankingLoss of this rank's embeddings of a global micro-batch.
#pragma once

#include <ATen/core/Tensor.h>

#include "data/batch_maker.h"
#include "train/row_gather.h"

namespace stft::train {

// Gathers the documents of all ranks and ranks this rank's anchors among them; collective when `gather` is.
// `embeddings_ND` has one row a text of `batch`. Candidates are in the order of the global micro-batch (positives of
// all rows, then first negatives, ...), whatever the number of ranks. The parts of all ranks sum to the loss.
at::Tensor ranking_loss(const data::LocalMicroBatch& batch, const at::Tensor& embeddings_ND, double scale,
                        const RowGather& gather);

}  // namespace stft::train
