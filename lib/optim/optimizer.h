// Optimizers over lists of flat local tensors. They know neither names nor ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "optim/optim_config.h"

namespace stft::optim {

// One tensor to update in place: value and gradient are flat fp32 of equal size, 0 elements allowed.
struct Update {
  at::Tensor value;
  at::Tensor gradient;
  bool has_weight_decay = true;
};

// What an optimizer keeps beside the parameters, for checkpoints. The tensors are the optimizer's own memory.
struct OptimizerState {
  std::vector<std::string> names;                // as in torch.optim: "exp_avg", "exp_avg_sq"; none: no state
  std::vector<std::vector<at::Tensor>> tensors;  // of each update, one a name; flat, of the size of its value
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // The state of the tensors of `updates`; zeros when there was no step yet.
  virtual OptimizerState state(const std::vector<Update>& updates) = 0;
  // Bytes of the state so far; nothing is made for it.
  virtual int64_t state_bytes() const = 0;
  // Steps taken so far; they correct the moments' bias.
  virtual int64_t steps() const = 0;
  virtual void set_steps(int64_t steps) = 0;

  // One step. `updates` has the same tensors in the same order at every call. Every gradient counts as multiplied by
  // `gradient_scale` (clipping).
  virtual void step(const std::vector<Update>& updates, double learning_rate, double gradient_scale) = 0;
};

// AdamW (Loshchilov and Hutter, 2019; as torch.optim.AdamW) or SGD without momentum (as torch.optim.SGD with weight
// decay added to the gradient).
std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config);

}  // namespace stft::optim
