#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace stft::optim {

// torch.optim.AdamW with moments of fp32: "exp_avg" and "exp_avg_sq".
std::unique_ptr<Optimizer> make_adamw(const OptimConfig& config);

}  // namespace stft::optim
