#include "model/token_batch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace stft::model {
namespace {

// Dropout sites within a layer (token_dropout_scale gets 1 and above).
constexpr uint32_t kAttentionSite = 0;

constexpr int64_t kTokenOfEmptyText = 0;

void place_texts(TokenBatch& batch, std::span<const int32_t> ids, std::span<const int64_t> offsets,
                 std::span<const int64_t> order) {
  const int64_t longest = batch.lengths.empty() ? 0 : *std::max_element(batch.lengths.begin(), batch.lengths.end());
  const bool is_padded = batch.layout == Layout::kPadded;
  const int64_t total = is_padded ? batch.texts() * longest : batch.real_tokens();
  batch.token_ids_T = at::zeros({total}, at::kLong);
  batch.position_T = at::zeros({total}, at::kLong);
  auto* id = batch.token_ids_T.data_ptr<int64_t>();
  auto* position = batch.position_T.data_ptr<int64_t>();
  int64_t next = 0;
  for (int64_t i = 0; i < batch.texts(); ++i) {
    const auto text = static_cast<size_t>(order[static_cast<size_t>(i)]);
    const int64_t begin = offsets[text];
    const int64_t length = batch.lengths[static_cast<size_t>(i)];
    const bool is_empty = begin == offsets[text + 1];
    if (is_empty) {
      batch.empty_T.push_back(next);
    }
    for (int64_t t = 0; t < length; ++t) {
      id[next + t] = is_empty ? kTokenOfEmptyText : ids[static_cast<size_t>(begin + t)];
      position[next + t] = t;
    }
    next += is_padded ? longest : length;
  }
  if (is_padded) {
    batch.padding_mask_NL = at::zeros({batch.texts(), longest}, at::kBool);
    for (int64_t i = 0; i < batch.texts(); ++i) {
      std::fill_n(batch.padding_mask_NL.data_ptr<bool>() + i * longest, batch.lengths[static_cast<size_t>(i)], true);
    }
    batch.buckets = {{longest, batch.texts()}};
  }
}

}  // namespace

int64_t TokenBatch::real_tokens() const {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

TokenBatch make_token_batch(std::span<const int32_t> ids, std::span<const int64_t> offsets,
                            std::span<const TextKey> keys, Layout layout, std::span<const int64_t> prompt_lengths) {
  STFT_CHECK(offsets.size() == keys.size() + 1, "one offset more than texts");
  STFT_CHECK(prompt_lengths.empty() || prompt_lengths.size() == keys.size(), "a prompt length for every text");
  const auto texts = static_cast<int64_t>(keys.size());
  STFT_CHECK(texts > 0, "a batch without texts");
  TokenBatch batch;
  batch.layout = layout;
  std::vector<int64_t> order(keys.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto length_of = [&](int64_t i) {
    return std::max<int64_t>(1, offsets[static_cast<size_t>(i) + 1] - offsets[static_cast<size_t>(i)]);
  };
  if (layout == Layout::kPacked) {
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return length_of(a) < length_of(b); });
  }
  batch.memory_to_caller_N = at::empty({texts}, at::kLong);
  for (int64_t i = 0; i < texts; ++i) {
    const int64_t text = order[static_cast<size_t>(i)];
    const int64_t length = length_of(text);
    batch.lengths.push_back(length);
    batch.keys.push_back(keys[static_cast<size_t>(text)]);
    if (!prompt_lengths.empty()) {
      batch.prompt_lengths.push_back(prompt_lengths[static_cast<size_t>(text)]);
    }
    batch.memory_to_caller_N.data_ptr<int64_t>()[text] = i;
    if (layout == Layout::kPacked) {
      if (batch.buckets.empty() || batch.buckets.back().length != length) {
        batch.buckets.push_back({length, 0});
      }
      batch.buckets.back().count += 1;
    }
  }
  place_texts(batch, ids, offsets, order);
  return batch;
}

at::Tensor token_dropout_scale(const TokenBatch& batch, const DropoutPlan& plan, int64_t width, uint32_t layer,
                               uint32_t site, double probability) {
  STFT_CHECK(site > kAttentionSite, "site 0 is the attention's");
  auto scale = at::zeros({batch.token_ids_T.size(0), width}, at::kFloat);
  auto* out = scale.data_ptr<float>();
  const int64_t stride = batch.layout == Layout::kPadded ? batch.buckets.front().length : 0;
  for (int64_t i = 0; i < batch.texts(); ++i) {
    const int64_t length = batch.lengths[static_cast<size_t>(i)];
    const TextKey key = batch.keys[static_cast<size_t>(i)];
    rng::fill_dropout_scale({out, static_cast<size_t>(length * width)}, plan.key, {key.row, key.column, layer, site},
                            probability);
    out += (stride > 0 ? stride : length) * width;
  }
  return scale;
}

at::Tensor attention_dropout_scale(const TokenBatch& batch, const DropoutPlan& plan, int64_t bucket, int64_t heads,
                                   uint32_t layer, double probability) {
  int64_t first_text = 0;
  for (int64_t b = 0; b < bucket; ++b) {
    first_text += batch.buckets[static_cast<size_t>(b)].count;
  }
  const auto [length, count] = batch.buckets[static_cast<size_t>(bucket)];
  auto scale = at::zeros({count, heads, length, length}, at::kFloat);
  auto* out = scale.data_ptr<float>();
  std::vector<float> own;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t text = first_text + i;
    const int64_t own_length = batch.lengths[static_cast<size_t>(text)];
    const TextKey key = batch.keys[static_cast<size_t>(text)];
    own.resize(static_cast<size_t>(heads * own_length * own_length));
    rng::fill_dropout_scale(own, plan.key, {key.row, key.column, layer, kAttentionSite}, probability);
    for (int64_t row = 0; row < heads * own_length; ++row) {
      const int64_t head = row / own_length;
      const int64_t query = row % own_length;
      std::copy_n(own.data() + row * own_length, own_length, out + ((i * heads + head) * length + query) * length);
    }
  }
  return scale;
}

}  // namespace stft::model
