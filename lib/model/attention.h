// Bidirectional multi-head attention over a token batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/encoder.h"
#include "model/token_batch.h"

namespace stft::model {

struct AttentionPlan {
  int64_t heads = 1;
  uint32_t layer = 0;
  double dropout = 0.0;  // of the attention probabilities; used when the context has a dropout plan
};

// query, key, value [T, heads * head_dim] -> [T, heads * head_dim]. Each text attends to its own tokens only; scores
// are scaled by 1 / sqrt(head_dim) (Vaswani et al., 2017, eq. 1). Works bucket by bucket of equal length, so packed
// texts need no mask. Scores and probabilities are fp32; the result has the dtype of the values.
at::Tensor attend(const at::Tensor& query_TD, const at::Tensor& key_TD, const at::Tensor& value_TD,
                  const TokenBatch& batch, const ForwardContext& context, const AttentionPlan& plan);

}  // namespace stft::model
