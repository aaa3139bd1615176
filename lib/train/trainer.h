// The training loop: the only place that decides when something happens.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "train/best_tracker.h"
#include "train/evaluation.h"
#include "train/reporter.h"
#include "train/run.h"
#include "train/run_state.h"
#include "train/step.h"

namespace stft::train {

enum class Outcome {
  kDone,
  kStopped  // asked to; a complete checkpoint was saved
};

class Trainer {
 public:
  // Borrows the run. `is_stop_requested` (may be empty) tells whether this rank was asked to stop; the ranks agree
  // before they act on it.
  Trainer(Run& run, std::function<bool()> is_stop_requested);

  // Collective: the whole run, from the evaluation before training to final/. Writes below run.output_dir.
  Outcome train();

 private:
  // Of the step that was just done, or of the start.
  bool ends_epoch() const { return state_.position.step > 0 && state_.position.row == 0; }
  bool is_last() const { return state_.stops_early || state_.position.step == run_.plan->total_steps(); }
  bool logs_now() const;
  bool evaluates_now() const;
  bool saves_now(bool is_new_best) const;

  TrainerStateFacts facts() const {
    return {run_.recipe, run_.plan->total_steps(), logging_steps_, eval_steps_, save_steps_};
  }

  bool agree_to_stop();
  void take_step(const data::LocalStep& step);
  bool evaluate_and_save();
  bool note_value(const Evaluation& evaluation);
  enum class Occasion { kScheduled, kStopping };
  void save(Occasion occasion);
  std::optional<Evaluation> evaluate();
  Outcome stop();
  Outcome finish();
  bool reload_best();

  Run& run_;
  std::function<bool()> is_stop_requested_;
  StepRunner runner_;
  EvaluationRunner evaluation_;
  Reporter reporter_;
  std::optional<BestRule> best_rule_;
  int64_t logging_steps_ = 1, eval_steps_ = 1, save_steps_ = 1;
  RunState state_;
  StepReport last_step_;
  int64_t scheduled_step_ = -1;  // of the last checkpoint that was due
  int64_t resumable_step_ = -1;  // of the last checkpoint that holds the state as it is
  Evaluation first_evaluation_, last_evaluation_;
};

}  // namespace stft::train
