#include "optim/schedule.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace stft::optim {

Schedule::Schedule(const OptimConfig& config, int64_t total_steps)
    : config_(config),
      total_steps_(total_steps),
      warmup_steps_(config.warmup_steps < 1
                        ? static_cast<int64_t>(std::ceil(config.warmup_steps * static_cast<double>(total_steps)))
                        : static_cast<int64_t>(config.warmup_steps)) {}

double Schedule::learning_rate(int64_t step) const {
  const auto ratio = [](int64_t part, int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole));
  };
  double factor = 1.0;
  const bool has_warmup = config_.lr_scheduler_type != ScheduleType::kConstant;
  if (has_warmup && step < warmup_steps_) {
    factor = ratio(step, warmup_steps_);
  } else if (config_.lr_scheduler_type == ScheduleType::kLinear) {
    factor = std::max(0.0, ratio(total_steps_ - step, total_steps_ - warmup_steps_));
  } else {
    STFT_CHECK(!has_warmup || config_.lr_scheduler_type == ScheduleType::kConstantWithWarmup, "schedule is available");
  }
  return config_.learning_rate * factor;
}

}  // namespace stft::optim
