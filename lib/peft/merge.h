// What an adapter makes of a tensor of its base, as PEFT's merge_and_unload.
#pragma once

#include <ATen/core/Tensor.h>

namespace stft::peft {

// Whole tensors of one module; what it has not is undefined.
struct ModuleTensors {
  at::Tensor down, up, up_bias, magnitude;
  double scale = 1.0;
  bool is_embedding = false;
};

// W' = W + scale * B A (of an embedding: its transpose); with a magnitude m the rows are then scaled by m / norm(row).
// `weight` is fp32 and stays as it is; A and B may have any floating type, and what they add is rounded to it.
at::Tensor merged_weight(const at::Tensor& weight, const ModuleTensors& module);

// b' = b + scale * bias of B.
at::Tensor merged_bias(const at::Tensor& bias, const ModuleTensors& module);

}  // namespace stft::peft
