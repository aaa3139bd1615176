// Tells about a run: log.jsonl, the CSV files and the console. Every call is made by all ranks; rank 0 writes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "dist/process_group.h"
#include "train/evaluation.h"
#include "train/run.h"
#include "train/run_log.h"
#include "train/run_state.h"
#include "train/step.h"

namespace stft::train {

// What the log tells of a step.
struct StepReport {
  StepResult result;
  double learning_rate = 0;
};

// What the log tells of a checkpoint.
struct SaveReport {
  std::string checkpoint;  // its name
  uint64_t parameters_checksum = 0;
  double seconds = 0;
};

class Reporter {
 public:
  // Borrows the run. Makes output_dir with recipe.resolved.yaml; a run that goes on appends to its log.
  explicit Reporter(Run& run);

  // Collective: the "start" event and what a person wants to know first.
  void start(const RunState& state);
  // The live line, or a plain one when the step is a milestone.
  void progress(const RunState& state, const StepReport& step, bool is_milestone);
  // The "skip" event: the step's loss or gradient norm was not finite, so nothing was updated.
  void skipped(const RunState& state, const StepReport& step);
  // The "collectives" event: what the step's collectives cost this rank.
  void collectives(const RunState& state, const dist::CollectiveCounts& counts);
  // Collective: the "step" event with the ranks' memory. Adds to the state's history and starts its totals anew.
  void log_step(RunState& state, const StepReport& step);
  void evaluating(const RunState& state);
  // The "eval" event, the CSV rows, the table. Adds to the history.
  void evaluated(RunState& state, const Evaluation& evaluation);
  // The evaluation of the reloaded best: an event with "reloaded"; no row and no entry in the history.
  void evaluated_best(const RunState& state, const Evaluation& evaluation);
  void saved(const RunState& state, const SaveReport& save);
  void stopped(const RunState& state, const std::string& checkpoint);
  // The "end" event, before and after, where the model is. `first` and `last` may be empty.
  void finished(const RunState& state, const Evaluation& first, const Evaluation& last);

 private:
  void show_table(const RunState& state, const Evaluation& evaluation, const std::string& what);

  Run& run_;
  bool is_writer_;
  int64_t skipped_steps_ = 0;
  std::unique_ptr<RunLog> log_;  // rank 0, when the recipe reports to jsonl
};

}  // namespace stft::train
