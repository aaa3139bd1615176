// AdamW whose two moments are kept in 8 bits (bitsandbytes' AdamW8bit): the first with the signed dynamic map, the
// second with the unsigned one, in blocks of kByteBlock values. A block is read to fp32, stepped in fp32 and written
// back, so the parameters of a block depend on that block alone: any split by whole blocks gives the same bits.
#pragma once

#include <cstdint>
#include <span>

#include "quant/bnb_blockwise8.h"

namespace stft::quant {

struct Adam8bitOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;  // decoupled
  double gradient_scale = 1;   // every gradient counts as multiplied by it
  std::int64_t step = 1;       // from 1, this step
};

// At the start all codes and all absmax are 0.
struct Adam8bitState {
  ByteBlocks m;
  ByteBlocks v;
  // Each row of so many values has blocks of its own, the last of which may be short; 0: all values are one row.
  std::int64_t row_elements = 0;
};

// One step. A gradient that is not finite leaves its block's parameters and state alone; false when there was one.
bool adam8bit_step(const Adam8bitOptions& options, Adam8bitState state, std::span<float> parameters,
                   std::span<const float> gradients);

}  // namespace stft::quant
