// Token vectors to one vector a text.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "model/model_config.h"
#include "model/token_batch.h"

namespace stft::model {

// hidden [T, D] -> fp32 [N, D * modes] in the caller's order; several modes are concatenated. Positions come from the
// lengths, so padding never counts.
at::Tensor pool(const at::Tensor& hidden_TD, const TokenBatch& batch, const std::vector<PoolingMode>& modes);

}  // namespace stft::model
