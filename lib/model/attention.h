// Multi-head attention over a token batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "model/encoder.h"
#include "model/token_batch.h"

namespace stft::model {

// Query and key of a bucket of texts, [texts, heads, length, head_dim].
struct BucketHeads {
  const at::Tensor& query_BHLE;
  const at::Tensor& key_BHLE;
};

// What is added to the scaled scores of a bucket: broadcasts to [texts, heads, length, length]. Differentiable.
using ScoreBias = std::function<at::Tensor(const BucketHeads&)>;

struct AttentionPlan {
  int64_t heads = 1;
  uint32_t layer = 0;
  double dropout = 0.0;    // of the attention probabilities; used when the context has a dropout plan
  int64_t key_heads = 0;   // of keys and values; each serves heads / key_heads query heads; 0: as many as heads
  bool is_causal = false;  // a token sees no later one
  std::optional<int64_t> reach = std::nullopt;  // a token sees others up to this far away; none: no limit
  std::optional<double> scale = std::nullopt;   // of the scores; default 1 / sqrt(head_dim)
  double soft_cap = 0.0;                        // scores become cap * tanh(score / cap); 0: they do not
  ScoreBias bias = nullptr;
};

// query [T, heads * head_dim], key and value [T, key_heads * head_dim] -> [T, heads * head_dim]. Each text attends to
// its own tokens only (Vaswani et al., 2017, eq. 1). Works bucket by bucket of equal length, so packed texts need no
// mask for that. Scores and probabilities are fp32; the result has the dtype of the values.
at::Tensor attend(const at::Tensor& query_TD, const at::Tensor& key_TD, const at::Tensor& value_TD,
                  const TokenBatch& batch, const ForwardContext& context, const AttentionPlan& plan);

}  // namespace stft::model
