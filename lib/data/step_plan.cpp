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
  STFT_CHECK(options.start.row >= 0 && options.start.row <= options.rows, "the start lies in the data");
  micro_batches_per_epoch_ = micro_batches_from(0);
  used_rows_ = std::min(options.rows, micro_batches_per_epoch_ * options.rows_per_micro_batch);
  steps_per_epoch_ = divide_up(micro_batches_per_epoch_, options.accumulation);
  first_epoch_micro_batches_ = micro_batches_from(options.start.row);
  first_epoch_steps_ = divide_up(first_epoch_micro_batches_, options.accumulation);
  if (steps_per_epoch_ > 0) {
    total_steps_ = options.max_steps > 0 ? std::max(options.max_steps, options.start.step) : planned_end();
  }
}

int64_t StepPlan::micro_batches_from(int64_t row) const {
  const int64_t rows = options_.rows - row;
  return options_.drops_last ? rows / options_.rows_per_micro_batch : divide_up(rows, options_.rows_per_micro_batch);
}

// Steps until the place where a run of options_.epochs from the start ends.
int64_t StepPlan::planned_end() const {
  const Position& start = options_.start;
  const auto fresh = static_cast<int64_t>(std::ceil(options_.epochs * static_cast<double>(steps_per_epoch_)));
  const int64_t end_epoch = fresh / steps_per_epoch_;
  const int64_t end_steps = fresh % steps_per_epoch_;  // of the last epoch, which is not run whole
  if (start.epoch > end_epoch) {
    return start.step;
  }
  if (start.epoch == end_epoch) {
    const int64_t end_row = std::min(end_steps * options_.accumulation * options_.rows_per_micro_batch, used_rows_);
    const int64_t rows = std::max<int64_t>(0, end_row - start.row);
    return start.step + divide_up(divide_up(rows, options_.rows_per_micro_batch), options_.accumulation);
  }
  return start.step + first_epoch_steps_ + (end_epoch - start.epoch - 1) * steps_per_epoch_ + end_steps;
}

PlannedStep StepPlan::step(int64_t index) const {
  STFT_CHECK(index >= first_step() && index < total_steps_, "a step outside the plan");
  const Position& start = options_.start;
  const int64_t done = index - start.step;
  const bool is_first_epoch = done < first_epoch_steps_;
  const int64_t later = done - first_epoch_steps_;
  const int64_t in_epoch = is_first_epoch ? done : later % steps_per_epoch_;  // steps of this epoch before this one
  const int64_t whole_epochs = is_first_epoch ? 0 : later / steps_per_epoch_;
  const int64_t first_row = is_first_epoch ? start.row : 0;
  const int64_t micro_batches = is_first_epoch ? first_epoch_micro_batches_ : micro_batches_per_epoch_;

  PlannedStep planned;
  planned.epoch = is_first_epoch ? start.epoch : start.epoch + 1 + whole_epochs;
  const uint64_t micro_before =
      start.micro_steps +
      static_cast<uint64_t>(is_first_epoch ? 0 : first_epoch_micro_batches_ + whole_epochs * micro_batches_per_epoch_);
  const int64_t first_micro = in_epoch * options_.accumulation;
  const int64_t end_micro = std::min(first_micro + options_.accumulation, micro_batches);
  for (int64_t micro = first_micro; micro < end_micro; ++micro) {
    MicroBatchRange range;
    range.first = first_row + micro * options_.rows_per_micro_batch;
    range.rows = std::min(options_.rows_per_micro_batch, options_.rows - range.first);
    range.micro_step = micro_before + static_cast<uint64_t>(micro);
    planned.rows += range.rows;
    planned.micro_batches.push_back(range);
  }
  const MicroBatchRange& last = planned.micro_batches.back();
  const bool ends_epoch = end_micro == micro_batches;
  const double fraction =
      ends_epoch ? 1.0 : static_cast<double>(last.first + last.rows) / static_cast<double>(used_rows_);
  planned.epoch_after = static_cast<double>(planned.epoch) + std::min(1.0, fraction);
  planned.end = {index + 1, planned.epoch + (ends_epoch ? 1 : 0), ends_epoch ? 0 : last.first + last.rows,
                 last.micro_step + 1};
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
