// Optimizers over lists of flat local tensors. They know neither names nor ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "optim/optim_config.h"

namespace stft::optim {

// One tensor to update in place: value and gradient are flat fp32 of equal size, 0 elements allowed.
struct Update {
  at::Tensor value;
  at::Tensor gradient;
  bool has_weight_decay = true;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One step. `updates` has the same tensors in the same order at every call. Every gradient counts as multiplied by
  // `gradient_scale` (clipping).
  virtual void step(const std::vector<Update>& updates, double learning_rate, double gradient_scale) = 0;
};

// AdamW (Loshchilov and Hutter, 2019; as torch.optim.AdamW) or SGD without momentum (as torch.optim.SGD with weight
// decay added to the gradient).
std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config);

}  // namespace stft::optim
