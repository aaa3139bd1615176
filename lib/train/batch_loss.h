// From embeddings of a micro-batch to the loss that the recipe names.
#pragma once

#include <ATen/core/Tensor.h>

#include "data/batch_maker.h"
#include "dist/process_group.h"
#include "loss/loss_config.h"

namespace stft::train {

// Collective over `world`, also for a rank without rows: this rank's part of the loss of the global micro-batch, a fp32
// scalar; the parts of all ranks sum to the loss. `embeddings_ND` has one row a text of `batch`. `world` must outlive
// the graph.
at::Tensor batch_loss(const loss::LossConfig& config, const data::LocalMicroBatch& batch,
                      const at::Tensor& embeddings_ND, dist::ProcessGroup& world);

// The same loss of a batch that this rank has whole (rank 0 of 1), nothing gathered.
at::Tensor local_loss(const loss::LossConfig& config, const data::LocalMicroBatch& batch,
                      const at::Tensor& embeddings_ND);

}  // namespace stft::train
