#include "data/step_plan.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace stft::data {
namespace {

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

StepPlan::StepPlan(const StepPlanOptions& options) : options_(options) {
  STFT_CHECK(options.rows_per_micro_batch > 0 && options.accumulation > 0, "batch sizes are positive");
  const int64_t size = options.rows_per_micro_batch;
  micro_batches_per_epoch_ = options.drops_last ? options.rows / size : divide_up(options.rows, size);
  used_rows_ = std::min(options.rows, micro_batches_per_epoch_ * size);
  steps_per_epoch_ = divide_up(micro_batches_per_epoch_, options.accumulation);
  if (steps_per_epoch_ > 0) {
    total_steps_ = options.max_steps > 0
                       ? options.max_steps
                       : static_cast<int64_t>(std::ceil(options.epochs * static_cast<double>(steps_per_epoch_)));
  }
}

PlannedStep StepPlan::step(int64_t index) const {
  STFT_CHECK(index >= 0 && index < total_steps_, "a step outside the plan");
  PlannedStep planned;
  planned.epoch = index / steps_per_epoch_;
  const int64_t first_micro = index % steps_per_epoch_ * options_.accumulation;
  const int64_t last_micro = std::min(first_micro + options_.accumulation, micro_batches_per_epoch_);
  for (int64_t micro = first_micro; micro < last_micro; ++micro) {
    MicroBatchRange range;
    range.first = micro * options_.rows_per_micro_batch;
    range.rows = std::min(options_.rows_per_micro_batch, used_rows_ - range.first);
    range.micro_step = static_cast<uint64_t>(planned.epoch * micro_batches_per_epoch_ + micro);
    planned.rows += range.rows;
    planned.micro_batches.push_back(range);
  }
  const MicroBatchRange& last = planned.micro_batches.back();
  planned.epoch_after = static_cast<double>(planned.epoch) +
                        static_cast<double>(last.first + last.rows) / static_cast<double>(used_rows_);
  return planned;
}

RankRows rank_rows(int64_t rows, int64_t rank, int64_t ranks) {
  RankRows result;
  result.chunk = divide_up(rows, ranks);
  result.first = std::min(rank * result.chunk, rows);
  result.count = std::min(result.chunk, rows - result.first);
  return result;
}

}  // namespace stft::data
