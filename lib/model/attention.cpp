#include "model/attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <vector>

// Shape suffixes: T tokens, D model width, B texts of a bucket, H heads, L length, E head width.

namespace stft::model {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor split_heads(const at::Tensor& tokens, const LengthBucket& bucket, int64_t heads) {
  return tokens.view({bucket.count, bucket.length, heads, -1}).transpose(1, 2);
}

// Each key head as often as query heads share it.
at::Tensor repeat_heads(const at::Tensor& heads_BHLE, int64_t times) {
  if (times == 1) {
    return heads_BHLE;
  }
  const auto sizes = heads_BHLE.sizes();
  return heads_BHLE.unsqueeze(2)
      .expand({sizes[0], sizes[1], times, sizes[2], sizes[3]})
      .reshape({sizes[0], sizes[1] * times, sizes[2], sizes[3]});
}

// Which keys a query sees, beyond what is_causal says on its own.
struct Visibility {
  at::Tensor mask;  // bool, broadcasts to [B, 1, L, L]; undefined: all of them
  bool is_causal = false;
};

// Padding stands behind a text, so causal attention never sees it.
Visibility visibility(const TokenBatch& batch, const LengthBucket& bucket, const AttentionPlan& plan) {
  Visibility result;
  if (batch.padding_mask_NL.defined() && !plan.is_causal) {
    result.mask = batch.padding_mask_NL.view({batch.texts(), 1, 1, -1});
  }
  if (!plan.reach || bucket.length <= *plan.reach + 1) {
    result.is_causal = plan.is_causal;
    return result;
  }
  const auto position_L = at::arange(bucket.length);
  const auto behind_LL = position_L.unsqueeze(1) - position_L;  // how far the key stands before the query
  auto near = behind_LL.ge(plan.is_causal ? 0 : -*plan.reach).logical_and(behind_LL.le(*plan.reach));
  if (result.mask.defined()) {
    // A token always sees itself, so that padding far from its text has something to attend to.
    near = near.logical_and(result.mask).logical_or(behind_LL.eq(0));
  }
  result.mask = near.view({-1, 1, bucket.length, bucket.length});
  return result;
}

at::Tensor explicit_mask(const Visibility& visible, int64_t length) {
  return visible.is_causal ? at::ones({length, length}, at::kBool).tril() : visible.mask;
}

// Step by step, for what the fused kernels do not have.
struct Scoring {
  at::Tensor mask;          // bool; undefined: none
  at::Tensor bias;          // undefined: none
  at::Tensor dropout_BHLL;  // undefined: none
  double scale = 1.0;
  double soft_cap = 0.0;
};

at::Tensor attend_step_by_step(const at::Tensor& query_BHLE, const at::Tensor& key_BHLE, const at::Tensor& value_BHLE,
                               const Scoring& scoring) {
  auto scores_BHLL = at::matmul(query_BHLE.to(at::kFloat) * scoring.scale, key_BHLE.to(at::kFloat).transpose(-2, -1));
  if (scoring.soft_cap > 0) {
    scores_BHLL = at::tanh(scores_BHLL / scoring.soft_cap) * scoring.soft_cap;
  }
  if (scoring.bias.defined()) {
    scores_BHLL = scores_BHLL + scoring.bias;
  }
  if (scoring.mask.defined()) {
    scores_BHLL = scores_BHLL.masked_fill(scoring.mask.logical_not(), -kInfinity);
  }
  auto weights_BHLL = at::softmax(scores_BHLL, -1);
  if (scoring.dropout_BHLL.defined()) {
    weights_BHLL = weights_BHLL * scoring.dropout_BHLL;
  }
  return at::matmul(weights_BHLL.to(value_BHLE.scalar_type()), value_BHLE);
}

at::Tensor attend_bucket(const at::Tensor& query_BHLE, const at::Tensor& key_BHLE, const at::Tensor& value_BHLE,
                         const Visibility& visible, const AttentionPlan& plan, const at::Tensor& dropout_BHLL) {
  const int64_t length = query_BHLE.size(2);
  const auto bias = plan.bias ? plan.bias({query_BHLE, key_BHLE}) : at::Tensor();
  if (dropout_BHLL.defined() || plan.soft_cap > 0 || bias.defined()) {
    const double scale = plan.scale.value_or(1.0 / std::sqrt(static_cast<double>(query_BHLE.size(-1))));
    return attend_step_by_step(query_BHLE, key_BHLE, value_BHLE,
                               {explicit_mask(visible, length), bias, dropout_BHLL, scale, plan.soft_cap});
  }
  std::optional<at::Tensor> mask;
  if (visible.mask.defined()) {
    mask = visible.mask.expand({query_BHLE.size(0), 1, length, length});
  }
  return at::scaled_dot_product_attention(query_BHLE, key_BHLE, value_BHLE, mask, 0.0, visible.is_causal, plan.scale);
}

}  // namespace

at::Tensor attend(const at::Tensor& query_TD, const at::Tensor& key_TD, const at::Tensor& value_TD,
                  const TokenBatch& batch, const ForwardContext& context, const AttentionPlan& plan) {
  std::vector<int64_t> sizes;
  for (const auto& bucket : batch.buckets) {
    sizes.push_back(bucket.length * bucket.count);
  }
  const auto queries = query_TD.split_with_sizes(sizes);
  const auto keys = key_TD.split_with_sizes(sizes);
  const auto values = value_TD.split_with_sizes(sizes);
  const bool has_dropout = context.dropout.has_value() && plan.dropout > 0;
  const int64_t key_heads = plan.key_heads > 0 ? plan.key_heads : plan.heads;
  std::vector<at::Tensor> outputs;
  for (size_t b = 0; b < batch.buckets.size(); ++b) {
    const LengthBucket& bucket = batch.buckets[b];
    const auto query_BHLE = split_heads(queries[b], bucket, plan.heads);
    const auto key_BHLE = repeat_heads(split_heads(keys[b], bucket, key_heads), plan.heads / key_heads);
    const auto value_BHLE = repeat_heads(split_heads(values[b], bucket, key_heads), plan.heads / key_heads);
    const auto dropout_BHLL = has_dropout ? attention_dropout_scale(batch, *context.dropout, static_cast<int64_t>(b),
                                                                    plan.heads, plan.layer, plan.dropout)
                                          : at::Tensor();
    const auto output_BHLE =
        attend_bucket(query_BHLE, key_BHLE, value_BHLE, visibility(batch, bucket, plan), plan, dropout_BHLL);
    outputs.push_back(output_BHLE.transpose(1, 2).reshape({bucket.count * bucket.length, -1}));
  }
  return outputs.size() == 1 ? outputs.front() : at::cat(outputs);
}

}  // namespace stft::model
