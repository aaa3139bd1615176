// Embeddings in fewer bits (after sentence-transformers 6.2, util/quantization.py).
#pragma once

#include <ATen/core/Tensor.h>

#include "eval/eval_config.h"

namespace stft::eval {

// fp32 [N, D], finite, to:
// - kFloat32: itself;
// - kInt8, kUint8: [N, D] in 255 steps between each column's smallest and largest value of these very embeddings (the
//   steps of kInt8 start at -128). UserError for a single embedding, which has no range;
// - kBinary, kUbinary: [N, ceil(D / 8)], one bit a dimension, set when it is above 0, the first dimension in the
// highest
//   bit; kBinary (int8) is the byte less 128.
// Equal to the peer bit for bit.
at::Tensor quantize(const at::Tensor& embeddings_ND, Precision precision);

}  // namespace stft::eval
