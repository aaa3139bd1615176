// Which evaluation is the best so far, and whether to go on (transformers' load_best_model_at_end and
// EarlyStoppingCallback).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace stft::train {

struct BestRule {
  std::string metric;  // as logged
  bool greater_is_better = true;
  std::optional<int64_t> patience;  // evaluations without improvement before the run stops; none: never
  double threshold = 0;             // what counts as an improvement for `patience`
};

// Part of a run's state.
struct BestProgress {
  std::optional<double> best;  // of all evaluations
  int64_t evaluations_without_improvement = 0;
  // The rule that these belong to.
  std::string metric;
  bool greater_is_better = true;

  bool operator==(const BestProgress&) const = default;
};

// Whether `value` is better than `other`; NaN never is.
bool is_better(const BestRule& rule, double value, double other);

struct BestVerdict {
  BestProgress progress;
  bool is_new_best = false;
  bool is_exhausted = false;  // patience has run out
};

// After an evaluation found `value`. NaN is no improvement and never the best.
BestVerdict observe(const BestRule& rule, BestProgress progress, double value);

}  // namespace stft::train
