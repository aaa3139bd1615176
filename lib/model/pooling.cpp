#include "model/pooling.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

// Shape suffixes: T tokens, D width, B texts of a bucket, L length.

namespace stft::model {
namespace {

constexpr double kSmallestCount = 1e-9;  // of a mean over no token, as in sentence-transformers

// Tokens that count, of each text, [B or 1, 1].
at::Tensor counts_of(const at::Tensor& hidden_BLD, const at::Tensor& mask_BL1) {
  return mask_BL1.defined() ? mask_BL1.sum(1).to(at::kFloat) : at::full({1, 1}, hidden_BLD.size(1), at::kFloat);
}

// The vector at `index_B11` of each text.
at::Tensor gather_token(const at::Tensor& hidden_BLD, const at::Tensor& index_B11) {
  return hidden_BLD.gather(1, index_B11.expand({-1, 1, hidden_BLD.size(2)})).squeeze(1);
}

at::Tensor first_token(const at::Tensor& hidden_BLD, const at::Tensor& mask_BL1) {
  return gather_token(hidden_BLD, mask_BL1.to(at::kInt).argmax(1, /*keepdim=*/true));
}

at::Tensor last_token(const at::Tensor& hidden_BLD, const at::Tensor& mask_BL1) {
  const auto place_L1 = at::arange(1, hidden_BLD.size(1) + 1, at::kLong).unsqueeze(-1);
  const auto last_B11 = (mask_BL1 * place_L1).amax(1, /*keepdim=*/true);  // counted from 1; 0: none
  const auto vectors_BD = gather_token(hidden_BLD, (last_B11 - 1).clamp_min(0));
  return vectors_BD * (last_B11.squeeze(1) > 0);
}

// `mask_BL1` tells which tokens count; undefined when all do.
at::Tensor pool_bucket(const at::Tensor& hidden_BLD, const at::Tensor& mask_BL1, PoolingMode mode) {
  switch (mode) {
    case PoolingMode::kCls:
      return mask_BL1.defined() ? first_token(hidden_BLD, mask_BL1) : hidden_BLD.select(1, 0);
    case PoolingMode::kMean:
      if (mask_BL1.defined()) {
        const auto weight = mask_BL1.to(hidden_BLD.scalar_type());
        return (hidden_BLD * weight).sum(1) / weight.sum(1).clamp_min(kSmallestCount);
      }
      return hidden_BLD.mean(1);
    case PoolingMode::kMeanSqrtLenTokens:
      return pool_bucket(hidden_BLD, mask_BL1, PoolingMode::kMean) * counts_of(hidden_BLD, mask_BL1).sqrt();
    case PoolingMode::kWeightedMean: {
      auto weight_BL1 = at::arange(1, hidden_BLD.size(1) + 1, at::kFloat).view({1, -1, 1});
      weight_BL1 = mask_BL1.defined() ? weight_BL1 * mask_BL1.to(at::kFloat) : weight_BL1;
      return (hidden_BLD * weight_BL1).sum(1) / weight_BL1.sum(1).clamp_min(kSmallestCount);
    }
    case PoolingMode::kLastToken:
      return mask_BL1.defined() ? last_token(hidden_BLD, mask_BL1) : hidden_BLD.select(1, hidden_BLD.size(1) - 1);
    case PoolingMode::kMax:
      if (mask_BL1.defined()) {
        return hidden_BLD.masked_fill(mask_BL1.logical_not(), -std::numeric_limits<double>::infinity()).amax(1);
      }
      return hidden_BLD.amax(1);
  }
  throw_internal("known pooling mode", "");
}

// Which tokens count of the bucket's texts, the first of which is `first_text` in memory order. [B, L, 1], or undefined
// when all do.
at::Tensor counting_tokens(const TokenBatch& batch, const LengthBucket& bucket, int64_t first_text,
                           bool includes_prompt) {
  at::Tensor mask_BL1;
  if (batch.padding_mask_NL.defined()) {
    mask_BL1 = batch.padding_mask_NL.unsqueeze(-1);
  }
  if (includes_prompt || batch.prompt_lengths.empty()) {
    return mask_BL1;
  }
  const auto begin = batch.prompt_lengths.begin() + first_text;
  const std::vector<int64_t> of_bucket(begin, begin + bucket.count);
  if (std::all_of(of_bucket.begin(), of_bucket.end(), [](int64_t length) { return length == 0; })) {
    return mask_BL1;
  }
  const auto prompt_B11 = at::tensor(of_bucket, at::kLong).view({-1, 1, 1});
  const auto outside_BL1 = at::arange(bucket.length, at::kLong).view({1, -1, 1}) >= prompt_B11;
  return mask_BL1.defined() ? mask_BL1.logical_and(outside_BL1) : outside_BL1;
}

}  // namespace

at::Tensor pool(const at::Tensor& hidden_TD, const TokenBatch& batch, const std::vector<PoolingMode>& modes,
                bool includes_prompt) {
  std::vector<int64_t> sizes;
  for (const auto& bucket : batch.buckets) {
    sizes.push_back(bucket.length * bucket.count);
  }
  const auto parts = hidden_TD.to(at::kFloat).split_with_sizes(sizes);
  std::vector<at::Tensor> pooled;
  int64_t first_text = 0;
  for (size_t b = 0; b < parts.size(); ++b) {
    const LengthBucket& bucket = batch.buckets[b];
    const auto hidden_BLD = parts[b].view({bucket.count, bucket.length, -1});
    const auto mask_BL1 = counting_tokens(batch, bucket, first_text, includes_prompt);
    std::vector<at::Tensor> by_mode;
    for (const PoolingMode mode : modes) {
      by_mode.push_back(pool_bucket(hidden_BLD, mask_BL1, mode));
    }
    pooled.push_back(by_mode.size() == 1 ? by_mode.front() : at::cat(by_mode, 1));
    first_text += bucket.count;
  }
  const auto in_memory_order = pooled.size() == 1 ? pooled.front() : at::cat(pooled);
  return in_memory_order.index_select(0, batch.memory_to_caller_N);
}

}  // namespace stft::model
