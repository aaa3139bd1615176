// The norm of a gradient that is spread over tensors and ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace stft::optim {

// Sum of squares of all elements, accumulated in fp64. Add the ranks' sums before taking the root.
double squared_norm(const std::vector<at::Tensor>& gradients);

// What to multiply the gradients by so that their norm is at most `max_norm`: min(1, max_norm / (norm + 1e-6)) as
// torch.nn.utils.clip_grad_norm_; 1 when max_norm is 0.
double clip_coefficient(double norm, double max_norm);

}  // namespace stft::optim
