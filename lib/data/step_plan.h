// Which rows make up which optimizer step: the order of the recipe's contract, the same at every number of ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace stft::data {

// Where a run stands between two optimizer steps.
struct Position {
  int64_t step = 0;          // optimizer steps done
  int64_t epoch = 0;         // of the next row
  int64_t row = 0;           // entries of that epoch's order that are done
  uint64_t micro_steps = 0;  // micro-batches done

  bool operator==(const Position&) const = default;
};

struct StepPlanOptions {
  int64_t rows = 0;                  // of the data set
  int64_t rows_per_micro_batch = 1;  // over all ranks
  int64_t accumulation = 1;          // micro-batches of a step
  double epochs = 1;
  int64_t max_steps = -1;   // above 0: overrides epochs
  bool drops_last = false;  // a short micro-batch at the end of an epoch is left out
  Position start;           // of a resumed run; batch sizes may have been others before
};

// A global micro-batch: `rows` entries of the epoch's order from `first` on.
struct MicroBatchRange {
  int64_t first = 0;
  int64_t rows = 0;
  uint64_t micro_step = 0;  // counted over the run; keys the dropout
};

struct PlannedStep {
  int64_t epoch = 0;
  std::vector<MicroBatchRange> micro_batches;
  int64_t rows = 0;        // of all micro-batches
  double epoch_after = 0;  // epochs completed after this step, as a fraction of rows seen
  Position end;            // after this step
};

// A step takes `accumulation` consecutive micro-batches of one epoch; the last step of an epoch may have fewer. A
// resumed run goes on at its row with its own batch sizes and ends where a run from the start would end; with the same
// sizes its steps are those of the uninterrupted run.
class StepPlan {
 public:
  explicit StepPlan(const StepPlanOptions& options);

  int64_t total_steps() const { return total_steps_; }  // those before the start counted; 0: nothing to train on
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  int64_t first_step() const { return options_.start.step; }
  PlannedStep step(int64_t index) const;  // first_step() <= index < total_steps()

 private:
  int64_t micro_batches_from(int64_t row) const;
  int64_t planned_end() const;

  StepPlanOptions options_;
  int64_t used_rows_ = 0;  // of an epoch
  int64_t micro_batches_per_epoch_ = 0;
  int64_t steps_per_epoch_ = 0;
  int64_t first_epoch_micro_batches_ = 0;  // of the rest of the start's epoch
  int64_t first_epoch_steps_ = 0;
  int64_t total_steps_ = 0;
};

// The rows of a global micro-batch that a rank works on: [rank * chunk, min((rank + 1) * chunk, rows)) with
// chunk = ceil(rows / ranks); it may be empty.
struct RankRows {
  int64_t chunk = 0;
  int64_t first = 0;
  int64_t count = 0;
};
RankRows rank_rows(int64_t rows, int64_t rank, int64_t ranks);

}  // namespace stft::data
