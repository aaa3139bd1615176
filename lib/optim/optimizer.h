// Optimizers over lists of flat local tensors. They know neither names nor ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "optim/optim_config.h"

namespace stft::optim {

// The whole tensor that an update is a part of.
struct TensorFacts {
  int64_t row_numel = 1;   // elements of a row of dimension 0; a part is whole rows
  int64_t full_numel = 0;  // of all rows
  bool is_table = false;   // looked up by ids (torch.nn.Embedding)
};

// One tensor to update in place: value and gradient are flat fp32 of equal size, 0 elements allowed.
struct Update {
  at::Tensor value;
  at::Tensor gradient;
  bool has_weight_decay = true;
  double learning_rate = 0;  // before the schedule
  TensorFacts facts;
};

// A part of what an optimizer keeps of an update: the optimizer's own memory, flat, of as many rows as the update.
struct StateTensor {
  std::string name;   // as in the peer's state dict
  at::Tensor tensor;  // fp32 or uint8
  int64_t row_numel;  // elements of a row
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // What is kept of each of `updates`, for checkpoints: of a tensor always the same names and types. Zeros when there
  // was no step yet; zeros are always that state. Empty lists: it keeps nothing.
  virtual std::vector<std::vector<StateTensor>> state(const std::vector<Update>& updates) = 0;
  // Bytes of the state so far; nothing is made for it.
  virtual int64_t state_bytes() const = 0;
  // Steps taken so far; they correct the moments' bias.
  virtual int64_t steps() const = 0;
  virtual void set_steps(int64_t steps) = 0;

  // One step at each update's rate times `rate_factor` (the schedule's). `updates` has the same tensors in the same
  // order at every call, and finite gradients; every gradient counts as multiplied by `gradient_scale` (clipping).
  virtual void step(const std::vector<Update>& updates, double rate_factor, double gradient_scale) = 0;
};

// AdamW (Loshchilov and Hutter, 2019; as torch.optim.AdamW), the same with moments of 8 bits (adamw_8bit.h), or SGD
// without momentum (as torch.optim.SGD with weight decay added to the gradient).
std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config);

// What the optimizer will keep of `rows` rows of a tensor, in bytes.
int64_t planned_state_bytes(const OptimConfig& config, const TensorFacts& facts, int64_t rows);

}  // namespace stft::optim
