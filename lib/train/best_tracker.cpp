#include "train/best_tracker.h"

#include <cmath>

namespace stft::train {

bool is_better(const BestRule& rule, double value, double other) {
  if (std::isnan(value)) {
    return false;
  }
  return std::isnan(other) || (rule.greater_is_better ? value > other : value < other);
}

BestVerdict observe(const BestRule& rule, BestProgress progress, double value) {
  BestVerdict verdict;
  verdict.is_new_best = !std::isnan(value) && (!progress.best || is_better(rule, value, *progress.best));
  const bool improves = verdict.is_new_best && (!progress.best || std::fabs(value - *progress.best) > rule.threshold);
  progress.evaluations_without_improvement = improves ? 0 : progress.evaluations_without_improvement + 1;
  if (verdict.is_new_best) {
    progress.best = value;
  }
  progress.metric = rule.metric;
  progress.greater_is_better = rule.greater_is_better;
  verdict.progress = progress;
  verdict.is_exhausted = rule.patience && progress.evaluations_without_improvement >= *rule.patience;
  return verdict;
}

}  // namespace stft::train
