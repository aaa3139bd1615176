// Checkpoints of a run: what goes into them, best.json, and which old ones may go.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "train/best_tracker.h"
#include "train/run.h"
#include "train/run_state.h"

namespace stft::train {

struct SaveRequest {
  const RunState& state;  // `best` as it is with this checkpoint
  TrainerStateFacts facts;
  eval::NamedValues metrics = {};                         // of the evaluation at this step; empty: none
  std::optional<checkpoint::Score> score = std::nullopt;  // by the rule for the best model
  bool with_optimizer = true;
  std::optional<std::string> replaces = std::nullopt;  // a checkpoint that goes when this one is complete
};

// Collective: writes checkpoint-<step> below output_dir (after which it is complete or absent), then best.json, and
// removes what save_total_limit does not allow. A rank that fails throws what happened, the others CollectiveError.
// Copies of the model that differ are not saved: the SystemError of checked_checksum, whose value is returned.
uint64_t save_checkpoint(Run& run, const SaveRequest& request);

// On rank 0: trainer_state.json of the run's directory.
void write_trainer_state(Run& run, const SaveRequest& request);

// What metric_for_best_model, greater_is_better and early stopping come to; none when nothing asks for a best model.
std::optional<BestRule> best_rule(const recipe::Recipe& recipe);

// A metric by the name that the recipe gives, with or without "eval_".
struct FoundMetric {
  std::string metric;  // as logged
  double value = 0;
};
// Whether a metric that was measured again is the recorded one: to 1e-6, relative above 1. NaN never is.
bool is_recorded_value(double measured, double recorded);

std::vector<std::string> metric_spellings(const std::string& name);
// Whether the progress belongs to this rule (or to none yet).
bool has_same_rule(const BestProgress& progress, const BestRule& rule);

std::optional<FoundMetric> find_metric(const eval::NamedValues& metrics, const std::string& name);

}  // namespace stft::train
