// CoSENTLoss of this rank's embeddings of a global micro-batch.
#pragma once

#include <ATen/core/Tensor.h>

#include "data/batch_maker.h"
#include "train/row_gather.h"

namespace stft::train {

// Gathers the similarities of all ranks' pairs and orders them; collective when `gather` is. `embeddings_ND` has one
// row a text of `batch`: the first texts of this rank's rows, then the second ones. Every rank returns loss / ranks, so
// that the parts of all ranks sum to the loss.
at::Tensor pair_order_loss(const data::LocalMicroBatch& batch, const at::Tensor& embeddings_ND, double scale,
                           const RowGather& gather);

}  // namespace stft::train
