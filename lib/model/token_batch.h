// Token ids of a batch of texts in the form that the encoders compute on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"

namespace stft::model {

// Which text of the global micro-batch this is; keys its dropout.
struct TextKey {
  uint32_t row = 0;
  uint32_t column = 0;
};

// Neighbouring texts of one length.
struct LengthBucket {
  int64_t length = 0;
  int64_t count = 0;
};

enum class Layout {
  kPacked,  // tokens of all texts one after the other, no padding; texts sorted by length
  kPadded,  // every text padded to the longest: the reference that kPacked must agree with
};

// Shapes: N texts, T = tokens in memory (packed: the sum of lengths; padded: N * longest).
struct TokenBatch {
  Layout layout = Layout::kPacked;
  at::Tensor token_ids_T;               // int64
  at::Tensor position_T;                // int64, counted from 0 in each text
  std::vector<int64_t> lengths;         // of the texts in memory order
  std::vector<LengthBucket> buckets;    // packed: ascending lengths; padded: one bucket of the longest length
  std::vector<TextKey> keys;            // in memory order
  at::Tensor memory_to_caller_N;        // int64: caller's text i stands at memory position memory_to_caller_N[i]
  at::Tensor padding_mask_NL;           // padded only: bool, true for real tokens
  std::vector<int64_t> empty_T;         // where a text without tokens stands
  std::vector<int64_t> prompt_lengths;  // leading tokens that are a prompt's, in memory order; empty: none are

  int64_t texts() const { return static_cast<int64_t>(lengths.size()); }
  int64_t real_tokens() const;
};

// `ids` holds the texts' token ids one after the other, text i being [offsets[i], offsets[i + 1]); a text without
// tokens (the tokenizer adds no special ones, as decoders' often do not) stands as the one token 0. `keys` has one
// entry a text, `prompt_lengths` too or none. Throws InternalError when the sizes do not fit.
TokenBatch make_token_batch(std::span<const int32_t> ids, std::span<const int64_t> offsets,
                            std::span<const TextKey> keys, Layout layout, std::span<const int64_t> prompt_lengths = {});

// Dropout of one forward pass. probability 0 draws nothing.
struct DropoutPlan {
  rng::Key key{};
};

// [T, width] (packed or padded layout): for each text's own [length, width] tensor the kept scale or 0, at `layer` and
// `site`; padding positions get 0.
at::Tensor token_dropout_scale(const TokenBatch& batch, const DropoutPlan& plan, int64_t width, uint32_t layer,
                               uint32_t site, double probability);

// For bucket `bucket`: [count, heads, length, length], for each text's own [heads, own length, own length] tensor.
at::Tensor attention_dropout_scale(const TokenBatch& batch, const DropoutPlan& plan, int64_t bucket, int64_t heads,
                                   uint32_t layer, double probability);

}  // namespace stft::model
