#include "model/attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

// Shape suffixes: T tokens, D model width, B texts of a bucket, H heads, L length, E head width.

namespace stft::model {
namespace {

at::Tensor split_heads(const at::Tensor& tokens, const LengthBucket& bucket, int64_t heads) {
  return tokens.view({bucket.count, bucket.length, heads, -1}).transpose(1, 2);
}

at::Tensor attend_with_dropout(const at::Tensor& query_BHLE, const at::Tensor& key_BHLE, const at::Tensor& value_BHLE,
                               const at::Tensor& mask, const at::Tensor& scale_BHLL) {
  const double scaling = 1.0 / std::sqrt(static_cast<double>(query_BHLE.size(-1)));
  auto scores_BHLL = at::matmul(query_BHLE.to(at::kFloat) * scaling, key_BHLE.to(at::kFloat).transpose(-2, -1));
  if (mask.defined()) {
    scores_BHLL = scores_BHLL.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity());
  }
  return at::matmul((at::softmax(scores_BHLL, -1) * scale_BHLL).to(value_BHLE.scalar_type()), value_BHLE);
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
  at::Tensor mask;
  if (batch.padding_mask_NL.defined()) {
    mask = batch.padding_mask_NL.view({batch.texts(), 1, 1, -1});
  }
  std::vector<at::Tensor> outputs;
  for (size_t b = 0; b < batch.buckets.size(); ++b) {
    const LengthBucket& bucket = batch.buckets[b];
    const auto query_BHLE = split_heads(queries[b], bucket, plan.heads);
    const auto key_BHLE = split_heads(keys[b], bucket, plan.heads);
    const auto value_BHLE = split_heads(values[b], bucket, plan.heads);
    at::Tensor output_BHLE;
    if (has_dropout) {
      const auto scale = attention_dropout_scale(batch, *context.dropout, static_cast<int64_t>(b), plan.heads,
                                                 plan.layer, plan.dropout);
      output_BHLE = attend_with_dropout(query_BHLE, key_BHLE, value_BHLE, mask, scale);
    } else if (mask.defined()) {
      const auto whole = mask.expand({bucket.count, 1, bucket.length, bucket.length});
      output_BHLE = at::scaled_dot_product_attention(query_BHLE, key_BHLE, value_BHLE, whole);
    } else {
      output_BHLE = at::scaled_dot_product_attention(query_BHLE, key_BHLE, value_BHLE);
    }
    outputs.push_back(output_BHLE.transpose(1, 2).reshape({bucket.count * bucket.length, -1}));
  }
  return outputs.size() == 1 ? outputs.front() : at::cat(outputs);
}

}  // namespace stft::model
