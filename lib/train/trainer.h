// The training loop: the only place that decides when something happens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/evaluation.h"
#include "train/run.h"
#include "train/run_log.h"
#include "train/step.h"

namespace stft::train {

class Trainer {
 public:
  // Borrows the run.
  explicit Trainer(Run& run);

  // Collective: the whole run, from the evaluation before training to final/. Writes below run.output_dir.
  void train();

 private:
  void announce();
  void take_step(const data::LocalStep& step);
  void log_step();
  bool evaluates_after(int64_t step, bool ends_epoch, bool is_last) const;
  std::vector<eval::EvaluationResult> evaluate();
  void finish();
  bool is_writer() const { return run_.mesh->world().rank() == 0; }

  Run& run_;
  StepRunner runner_;
  EvaluationRunner evaluation_;
  std::unique_ptr<RunLog> log_;  // rank 0, when the recipe reports to jsonl
  int64_t logging_steps_ = 1;
  int64_t eval_steps_ = 1;
  int64_t step_ = 0;  // steps done
  double epoch_ = 0;
  StepResult last_step_;
  double last_learning_rate_ = 0;
  double loss_sum_ = 0;  // since the last log
  int64_t steps_since_log_ = 0;
  int64_t rows_since_log_ = 0;
  int64_t tokens_since_log_ = 0;
  double seconds_since_log_ = 0;  // in steps, without evaluation
  double train_seconds_ = 0;
  std::vector<eval::EvaluationResult> first_evaluation_;
  std::vector<eval::EvaluationResult> last_evaluation_;
};

}  // namespace stft::train
