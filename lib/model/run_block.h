// The one way in which a model computes a block.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/encoder.h"
#include "model/recompute.h"

namespace stft::model {

struct BlockRef {
  int64_t index = 0;
  bool has_trainable = true;
  bool is_worth_recomputing = false;  // it keeps far more for its backward than its input
};

// Whether a parameter of block `index` requires a gradient.
bool has_trainable(const EncoderParts& parts, int64_t index);

// Announces the block to the context's observer, once a forward pass, and computes it from `input` (undefined for the
// first block). When the context recomputes, `body` runs again in the backward pass, unannounced, and must own all it
// reads besides the model.
at::Tensor run_block(const ForwardContext& context, const BlockRef& block, at::Tensor input, BlockBody body);

}  // namespace stft::model
