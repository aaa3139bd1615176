#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace stft::optim {
namespace {

constexpr double kDefaultTimescale = 10'000;  // of inverse_sqrt without a warm-up

double ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole));
}

// Half a wave from 1 to 0.
double half_cosine(double progress) {
  return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
}

}  // namespace

Schedule::Schedule(const OptimConfig& config, int64_t total_steps)
    : config_(config),
      total_steps_(total_steps),
      warmup_steps_(config.warmup_steps < 1
                        ? static_cast<int64_t>(std::ceil(config.warmup_steps * static_cast<double>(total_steps)))
                        : static_cast<int64_t>(config.warmup_steps)) {}

double Schedule::learning_rate(int64_t step) const {
  return config_.learning_rate * factor(step);
}

double Schedule::factor(int64_t step) const {
  if (config_.lr_scheduler_type == ScheduleType::kConstant) {
    return 1.0;
  }
  return step < warmup_steps_ ? ratio(step, warmup_steps_) : factor_after_warmup(step);
}

double Schedule::factor_after_warmup(int64_t step) const {
  const double progress = ratio(step - warmup_steps_, total_steps_ - warmup_steps_);
  switch (config_.lr_scheduler_type) {
    case ScheduleType::kConstant:
    case ScheduleType::kConstantWithWarmup:
      return 1.0;
    case ScheduleType::kLinear:
      return std::max(0.0, ratio(total_steps_ - step, total_steps_ - warmup_steps_));
    case ScheduleType::kCosine:
      return half_cosine(progress);
    case ScheduleType::kCosineWithRestarts:
      return progress >= 1.0 ? 0.0 : half_cosine(progress);  // the one cycle that it has by default
    case ScheduleType::kPolynomial: {
      const double range = config_.learning_rate - kPolynomialEnd;
      const double left = std::max(0.0, 1.0 - progress);
      return (range * left + kPolynomialEnd) / config_.learning_rate;
    }
    case ScheduleType::kInverseSqrt: {
      const double timescale = warmup_steps_ > 0 ? static_cast<double>(warmup_steps_) : kDefaultTimescale;
      const double since = static_cast<double>(step - warmup_steps_) + timescale;
      return 1.0 / std::sqrt(since / timescale);
    }
  }
  throw_internal("known schedule", "");
}

}  // namespace stft::optim
