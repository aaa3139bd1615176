// The optimizer and schedule keys of the recipe's `train:` block. Names and defaults are those of HF TrainingArguments.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace stft::optim {

enum class OptimizerType { kAdamW, kAdamW8bit, kSgd };

enum class ScheduleType {
  kLinear,
  kCosine,
  kCosineWithRestarts,
  kConstant,
  kConstantWithWarmup,
  kPolynomial,
  kInverseSqrt
};

// Where the polynomial schedule ends; the learning rate is above it.
inline constexpr double kPolynomialEnd = 1e-7;

struct OptimConfig {
  OptimizerType optim = OptimizerType::kAdamW;
  double learning_rate = 5e-5;
  // Regular expression over parameter names -> learning rate, in the order of the recipe.
  std::vector<std::pair<std::string, double>> learning_rate_mapping;
  double weight_decay = 0.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;  // 0: no clipping
  ScheduleType lr_scheduler_type = ScheduleType::kLinear;
  double warmup_steps = 0;  // below 1: a ratio of all steps, rounded up
};

}  // namespace stft::optim
