#include "optim/clip.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

namespace stft::optim {
namespace {

// Partial sums in a fixed number of lanes, so that the compiler can vectorise without changing the result.
__attribute__((target_clones("default", "avx2", "avx512f"))) double sum_of_squares(const float* values, int64_t count) {
  constexpr int64_t kLanes = 16;
  std::array<double, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[static_cast<size_t>(lane)] += value * value;
    }
  }
  double sum = 0;
  for (const double lane : lanes) {
    sum += lane;
  }
  for (; i < count; ++i) {
    sum += static_cast<double>(values[i]) * values[i];
  }
  return sum;
}

constexpr int64_t kGrain = 1 << 16;

}  // namespace

double squared_norm(const std::vector<at::Tensor>& gradients) {
  double total = 0;
  for (const at::Tensor& gradient : gradients) {
    const auto* values = gradient.const_data_ptr<float>();
    total += at::parallel_reduce(
        0, gradient.numel(), kGrain, 0.0,
        [&](int64_t begin, int64_t end, double start) { return start + sum_of_squares(values + begin, end - begin); },
        std::plus<double>());
  }
  return total;
}

double clip_coefficient(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace stft::optim
