#include "optim/optimizer.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "optim/adamw.h"
#include "optim/adamw_8bit.h"
#include "quant/bnb_blockwise8.h"

namespace stft::optim {
namespace {

class Sgd final : public Optimizer {
 public:
  explicit Sgd(const OptimConfig& config) : config_(config) {}

  void step(const std::vector<Update>& updates, double rate_factor, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    for (const Update& update : updates) {
      const double learning_rate = update.learning_rate * rate_factor;
      if (update.has_weight_decay && config_.weight_decay != 0) {
        update.value.mul_(1.0 - learning_rate * config_.weight_decay);
      }
      auto value = update.value;
      value.add_(update.gradient, -learning_rate * gradient_scale);
    }
    step_count_ += 1;
  }

  std::vector<std::vector<StateTensor>> state(const std::vector<Update>& updates) override {
    return std::vector<std::vector<StateTensor>>(updates.size());
  }
  int64_t state_bytes() const override { return 0; }
  int64_t steps() const override { return step_count_; }
  void set_steps(int64_t steps) override { step_count_ = steps; }

 private:
  OptimConfig config_;
  int64_t step_count_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config) {
  switch (config.optim) {
    case OptimizerType::kAdamW:
      return make_adamw(config);
    case OptimizerType::kAdamW8bit:
      return make_adamw_8bit(config);
    case OptimizerType::kSgd:
      return std::make_unique<Sgd>(config);
  }
  throw_internal("optimizer is available", "");
}

int64_t planned_state_bytes(const OptimConfig& config, const TensorFacts& facts, int64_t rows) {
  constexpr int64_t kFloatBytes = 4;
  if (config.optim == OptimizerType::kSgd) {
    return 0;
  }
  const bool is_8bit = config.optim == OptimizerType::kAdamW8bit && has_8bit_moments(facts);
  const int64_t of_row =
      is_8bit ? facts.row_numel + kFloatBytes * quant::byte_blocks(facts.row_numel) : kFloatBytes * facts.row_numel;
  return 2 * of_row * rows;
}

}  // namespace stft::optim
