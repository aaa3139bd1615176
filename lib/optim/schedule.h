// The learning rate over a run.
#pragma once

#include <cstdint>

#include "optim/optim_config.h"

namespace stft::optim {

// The rate of optimizer step `step` (counted from 0) of `total_steps`, as transformers' schedules give it with their
// defaults: half a cosine, restarts in one cycle, a polynomial of power 1 that ends at kPolynomialEnd, an inverse root
// whose time scale is the warm-up. A warm-up below 1 is a ratio of all steps, rounded up.
class Schedule {
 public:
  Schedule(const OptimConfig& config, int64_t total_steps);
  double learning_rate(int64_t step) const;
  // The same as a part of the rate that the recipe gives; of any other rate as well.
  double factor(int64_t step) const;
  int64_t warmup_steps() const { return warmup_steps_; }

 private:
  double factor_after_warmup(int64_t step) const;

  OptimConfig config_;
  int64_t total_steps_;
  int64_t warmup_steps_;
};

}  // namespace stft::optim
