// Token vectors to one vector a text.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "model/model_config.h"
#include "model/token_batch.h"

namespace stft::model {

// hidden [T, D] -> fp32 [N, D * modes] in the caller's order; several modes are concatenated. Positions come from the
// lengths, so padding never counts. Without `includes_prompt` the batch's leading prompt tokens do not count either, as
// in sentence-transformers 6.2: the first and the last token are those of the rest, weights keep their positions. Of a
// text that is all prompt: cls gives its first token, max negative infinity, the others zeros.
at::Tensor pool(const at::Tensor& hidden_TD, const TokenBatch& batch, const std::vector<PoolingMode>& modes,
                bool includes_prompt = true);

}  // namespace stft::model
