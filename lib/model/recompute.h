// Activation checkpointing (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace stft::model {

// A function of one tensor; everything else that it reads lives at least as long as it does and does not change.
using BlockBody = std::function<at::Tensor(const at::Tensor&)>;

// body(input), keeping nothing for the backward pass but `input`: there the body runs a second time, so it must compute
// the same again, and what it throws then comes out of backward(). The body's leaves get their gradients before the
// gradient of `input` goes on. `reads_leaves`: the body computes from leaves that require a gradient; without them and
// without a gradient of `input` this is body(input). Supports one backward pass into leaves, no second derivatives.
at::Tensor recomputed_in_backward(BlockBody body, const at::Tensor& input, bool reads_leaves);

}  // namespace stft::model
