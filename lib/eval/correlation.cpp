#include "eval/correlation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace stft::eval {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

bool is_nan(double value) {
  return std::isnan(value);
}

// Differences from the mean, of length 1; empty when there is no such direction. Scaled first, so that squares of very
// large and very small values stay in range.
std::vector<double> direction(std::span<const double> values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double largest = std::max(std::fabs(*low), std::fabs(*high));
  if (*low == *high || !std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); })) {
    return {};
  }
  std::vector<double> result;
  double sum = 0;
  for (const double value : values) {
    result.push_back(value / largest);
    sum += result.back();
  }
  const double mean = sum / static_cast<double>(result.size());
  double widest = 0;
  for (double& value : result) {
    value -= mean;
    widest = std::max(widest, std::fabs(value));
  }
  double squares = 0;
  for (double& value : result) {
    value /= widest;
    squares += value * value;
  }
  for (double& value : result) {
    value /= std::sqrt(squares);
  }
  return result;
}

}  // namespace

double pearson(std::span<const double> x, std::span<const double> y) {
  const auto a = direction(x);
  const auto b = direction(y);
  if (a.empty() || b.empty()) {
    return kNone;
  }
  return std::clamp(std::inner_product(a.begin(), a.end(), b.begin(), 0.0), -1.0, 1.0);
}

double spearman(std::span<const double> x, std::span<const double> y) {
  if (std::any_of(x.begin(), x.end(), is_nan) || std::any_of(y.begin(), y.end(), is_nan)) {
    return kNone;
  }
  return pearson(average_ranks(x), average_ranks(y));
}

std::vector<double> average_ranks(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t first = 0; first < order.size();) {
    size_t end = first + 1;
    while (end < order.size() && values[order[end]] == values[order[first]]) {
      ++end;
    }
    const double shared = static_cast<double>(first + 1 + end) / 2;
    for (size_t i = first; i < end; ++i) {
      ranks[order[i]] = shared;
    }
    first = end;
  }
  return ranks;
}

}  // namespace stft::eval
