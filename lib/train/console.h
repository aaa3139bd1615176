// What a person sees of a run: progress, evaluation tables, the result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/evaluator.h"
#include "eval/ir_metrics.h"

namespace stft::train {

struct Progress {
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0;
  double learning_rate = 0;
  double samples_per_s = 0;
  double eta_s = 0;
};

// One live line on a terminal (every call), a plain line elsewhere (only when `is_milestone`).
void show_progress(const Progress& progress, bool is_milestone);

// A small table of the main metrics: one row an evaluator, a header for each kind of them.
std::string evaluation_table(const std::vector<eval::EvaluationResult>& results);

struct Comparison {
  std::string metric;
  double before = 0;
  double after = 0;
  std::optional<eval::Interval> difference;  // none for a metric that is no mean over queries
};
std::string comparison_table(const std::vector<Comparison>& comparisons);

// "1:02:03" or "2:03".
std::string format_duration(double seconds);
// "8,192".
std::string format_count(int64_t count);

}  // namespace stft::train
