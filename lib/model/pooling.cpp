#include "model/pooling.h"

#include <ATen/ATen.h>

#include <limits>

#include "base/error.h"

// Shape suffixes: T tokens, D width, B texts of a bucket, L length.

namespace stft::model {
namespace {

// Real tokens of each text, [B or 1, 1].
at::Tensor lengths_of(const at::Tensor& hidden_BLD, const at::Tensor& mask_BL1) {
  return mask_BL1.defined() ? mask_BL1.sum(1).to(at::kFloat) : at::full({1, 1}, hidden_BLD.size(1), at::kFloat);
}

// `mask_BL1` is undefined when every position is a real token.
at::Tensor pool_bucket(const at::Tensor& hidden_BLD, const at::Tensor& mask_BL1, PoolingMode mode) {
  switch (mode) {
    case PoolingMode::kCls:
      return hidden_BLD.select(1, 0);
    case PoolingMode::kMean:
      if (mask_BL1.defined()) {
        const auto weight = mask_BL1.to(hidden_BLD.scalar_type());
        return (hidden_BLD * weight).sum(1) / weight.sum(1);
      }
      return hidden_BLD.mean(1);
    case PoolingMode::kMeanSqrtLenTokens:
      return pool_bucket(hidden_BLD, mask_BL1, PoolingMode::kMean) * lengths_of(hidden_BLD, mask_BL1).sqrt();
    case PoolingMode::kWeightedMean: {
      auto weight_BL1 = at::arange(1, hidden_BLD.size(1) + 1, at::kFloat).view({1, -1, 1});
      weight_BL1 = mask_BL1.defined() ? weight_BL1 * mask_BL1.to(at::kFloat) : weight_BL1;
      return (hidden_BLD * weight_BL1).sum(1) / weight_BL1.sum(1);
    }
    case PoolingMode::kLastToken:
      if (mask_BL1.defined()) {
        const auto last_B11 = (mask_BL1.sum(1, true) - 1).expand({-1, 1, hidden_BLD.size(2)});
        return hidden_BLD.gather(1, last_B11).squeeze(1);
      }
      return hidden_BLD.select(1, hidden_BLD.size(1) - 1);
    case PoolingMode::kMax:
      if (mask_BL1.defined()) {
        return hidden_BLD.masked_fill(mask_BL1.logical_not(), -std::numeric_limits<double>::infinity()).amax(1);
      }
      return hidden_BLD.amax(1);
  }
  throw_internal("known pooling mode", "");
}

}  // namespace

at::Tensor pool(const at::Tensor& hidden_TD, const TokenBatch& batch, const std::vector<PoolingMode>& modes) {
  std::vector<int64_t> sizes;
  for (const auto& bucket : batch.buckets) {
    sizes.push_back(bucket.length * bucket.count);
  }
  const auto parts = hidden_TD.to(at::kFloat).split_with_sizes(sizes);
  at::Tensor mask_BL1;
  if (batch.padding_mask_NL.defined()) {
    mask_BL1 = batch.padding_mask_NL.unsqueeze(-1);
  }
  std::vector<at::Tensor> pooled;
  for (size_t b = 0; b < parts.size(); ++b) {
    const auto hidden_BLD = parts[b].view({batch.buckets[b].count, batch.buckets[b].length, -1});
    std::vector<at::Tensor> by_mode;
    for (const PoolingMode mode : modes) {
      by_mode.push_back(pool_bucket(hidden_BLD, mask_BL1, mode));
    }
    pooled.push_back(by_mode.size() == 1 ? by_mode.front() : at::cat(by_mode, 1));
  }
  const auto in_memory_order = pooled.size() == 1 ? pooled.front() : at::cat(pooled);
  return in_memory_order.index_select(0, batch.memory_to_caller_N);
}

}  // namespace stft::model
