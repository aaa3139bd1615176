// What a run knows beside its weights and moments: everything that a resumed run needs to go on as if nothing had
// happened. Kept in every checkpoint (stft_state.json) and, in the form of transformers, as trainer_state.json.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_store.h"
#include "data/step_plan.h"
#include "eval/evaluator.h"
#include "recipe/recipe.h"
#include "train/best_tracker.h"

namespace stft::train {

// Since the last line of the log.
struct LogTotals {
  double loss_sum = 0;  // of the steps that were not skipped
  int64_t steps = 0;    // that were not skipped
  int64_t rows = 0;
  int64_t tokens = 0;
  double seconds = 0;  // in steps, without evaluation
};

struct RunState {
  data::Position position;
  double epoch = 0;
  LogTotals since_log;
  double train_seconds = 0;
  BestProgress best_progress;
  std::optional<checkpoint::BestCheckpoint> best;  // among the saved ones
  int64_t evaluated_step = -1;                     // of the last evaluation
  bool is_evaluation_pending = false;              // the evaluation due at this step was interrupted
  std::string data_fingerprint;                    // data::Dataset::fingerprint of the training data
  std::optional<std::string> stop_checkpoint;      // saved only because the run was asked to stop; gone with the next
  bool stops_early = false;                        // patience has run out
  eval::NamedValues first_values;                  // each evaluator's primary metric before training
  nlohmann::ordered_json history = nlohmann::ordered_json::array();  // transformers' log_history
};

// Numbers read back as the same bits (NaN as null).
std::string to_json(const RunState& state);
// UserError naming `origin` for anything malformed.
RunState run_state_from_json(const std::string& text, const std::string& origin);

// The state in the form that transformers' TrainerState reads.
struct TrainerStateFacts {
  const recipe::Recipe& recipe;
  int64_t total_steps = 0;
  int64_t logging_steps = 1, eval_steps = 1, save_steps = 1;
};
std::string trainer_state_json(const RunState& state, const TrainerStateFacts& facts);

// "eval_" before a metric's name unless it has it.
std::string with_eval_prefix(const std::string& metric);

}  // namespace stft::train
