// The one way in which a model computes a block.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>

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

// Which blocks are a model's layers.
struct LayerBlocks {
  int64_t first = 1;
  size_t count = 0;
};

// The layers one after the other, each a block that is worth recomputing. `layer` gets the number of the layer, from 0,
// and its input; it must own all that it reads besides the model.
at::Tensor run_layers(const ForwardContext& context, const EncoderParts& parts, LayerBlocks blocks,
                      at::Tensor hidden_TD,
                      const std::function<at::Tensor(size_t number, const at::Tensor& input_TD)>& layer);

}  // namespace stft::model
