// A tensor that later blocks read besides the output of the block before them.
#pragma once

#include <ATen/core/Tensor.h>

namespace stft::model {

struct WithSide {
  at::Tensor output;  // goes on to the next block
  at::Tensor side;    // for any later block, recomputed or not
};

// To be called at the end of the block that computed both. The later blocks' gradients for `side` are collected and go
// back through it once the gradient of `output` is there, so `output` must lead to all of them. One backward pass.
// `side` is no view of a parameter: those are freed behind their block.
WithSide with_side(const at::Tensor& output, const at::Tensor& side);

}  // namespace stft::model
