#include "optim/optimizer.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace stft::optim {
namespace {

class AdamW final : public Optimizer {
 public:
  explicit AdamW(const OptimConfig& config) : config_(config) {}

  void step(const std::vector<Update>& updates, double learning_rate, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    make_moments(updates);
    steps_.fill_(static_cast<double>(++step_count_));
    update_group(updates, learning_rate, gradient_scale, true);
    update_group(updates, learning_rate, gradient_scale, false);
  }

  OptimizerState state(const std::vector<Update>& updates) override {
    make_moments(updates);
    OptimizerState state;
    state.names = {"exp_avg", "exp_avg_sq"};
    for (const Moments& moments : moments_) {
      state.tensors.push_back({moments.first, moments.second});
    }
    return state;
  }
  int64_t state_bytes() const override {
    int64_t sum = 0;
    for (const Moments& moments : moments_) {
      sum += static_cast<int64_t>(moments.first.nbytes() + moments.second.nbytes());
    }
    return sum;
  }
  int64_t steps() const override { return step_count_; }
  void set_steps(int64_t steps) override { step_count_ = steps; }

 private:
  struct Moments {
    at::Tensor first, second;
  };

  void make_moments(const std::vector<Update>& updates) {
    if (moments_.empty()) {
      for (const Update& update : updates) {
        moments_.push_back({at::zeros_like(update.value), at::zeros_like(update.value)});
      }
    }
    STFT_CHECK(moments_.size() == updates.size(), "the optimizer's tensors changed");
  }

  void update_group(const std::vector<Update>& updates, double learning_rate, double gradient_scale, bool with_decay) {
    std::vector<at::Tensor> values, gradients, first, second, steps;
    for (size_t i = 0; i < updates.size(); ++i) {
      if (updates[i].has_weight_decay != with_decay || updates[i].value.numel() == 0) {
        continue;
      }
      values.push_back(updates[i].value);
      gradients.push_back(updates[i].gradient);
      first.push_back(moments_[i].first);
      second.push_back(moments_[i].second);
      steps.push_back(steps_);
    }
    if (values.empty()) {
      return;
    }
    // The kernel divides the gradients by grad_scale in the same pass.
    std::optional<at::Tensor> divisor;
    if (gradient_scale != 1.0) {
      divisor = at::full({}, 1.0 / gradient_scale, at::kFloat);
    }
    at::_fused_adamw_(values, gradients, first, second, {}, steps, learning_rate, config_.adam_beta1,
                      config_.adam_beta2, with_decay ? config_.weight_decay : 0.0, config_.adam_epsilon, false, false,
                      divisor, {});
  }

  OptimConfig config_;
  std::vector<Moments> moments_;
  at::Tensor steps_ = at::zeros({}, at::kFloat);
  int64_t step_count_ = 0;
};

class Sgd final : public Optimizer {
 public:
  explicit Sgd(const OptimConfig& config) : config_(config) {}

  void step(const std::vector<Update>& updates, double learning_rate, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    for (const Update& update : updates) {
      if (update.has_weight_decay && config_.weight_decay != 0) {
        update.value.mul_(1.0 - learning_rate * config_.weight_decay);
      }
      auto value = update.value;
      value.add_(update.gradient, -learning_rate * gradient_scale);
    }
    step_count_ += 1;
  }

  OptimizerState state(const std::vector<Update>& updates) override {
    return {{}, std::vector<std::vector<at::Tensor>>(updates.size())};
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
      return std::make_unique<AdamW>(config);
    case OptimizerType::kSgd:
      return std::make_unique<Sgd>(config);
    case OptimizerType::kAdamW8bit:
      break;
  }
  throw_internal("optimizer is available", "");
}

}  // namespace stft::optim
