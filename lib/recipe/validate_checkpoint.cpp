// What checkpoint:, early stopping and the evaluation schedule ask of each other, as transformers' TrainingArguments
// do.
#include <cmath>
#include <string>

#include "recipe/choices.h"
#include "recipe/validate.h"
#include "recipe/yaml_writer.h"

namespace stft::recipe {

namespace {

using checkpoint::SaveStrategy;

// Whether every save falls on an evaluation. Both are numbers of steps, or both ratios of all steps.
std::string misfit(double save_steps, double eval_steps) {
  const bool are_ratios = save_steps < 1 && eval_steps < 1;
  if (!are_ratios && (save_steps < 1 || eval_steps < 1)) {
    return "one is a number of steps and the other a ratio; give both in the same form";
  }
  const double quotient = save_steps / eval_steps;
  const bool is_multiple = std::fabs(quotient - std::round(quotient)) < 1e-9 && quotient > 0.5;
  return is_multiple ? "" : "the best model can only be one that was evaluated; use a multiple";
}

void check_best_schedule(const Recipe& recipe, Diagnostics& diagnostics) {
  const checkpoint::CheckpointConfig& config = recipe.checkpoint;
  const std::string key = "checkpoint.load_best_model_at_end";
  if (config.save_strategy == SaveStrategy::kNo) {
    diagnostics.add(key, "needs checkpoints, but checkpoint.save_strategy is no");
    return;
  }
  if (recipe.train.eval_strategy == EvalStrategy::kNo) {
    diagnostics.add(key, "needs evaluations, but train.eval_strategy is no");
    return;
  }
  const bool evaluates_epochs = recipe.train.eval_strategy == EvalStrategy::kEpoch;
  const bool saves_epochs = config.save_strategy == SaveStrategy::kEpoch;
  if (config.save_strategy != SaveStrategy::kBest && evaluates_epochs != saves_epochs) {
    diagnostics.add(key, "train.eval_strategy is " + name_of(kEvalStrategies, recipe.train.eval_strategy) +
                             " and checkpoint.save_strategy " + name_of(kSaveStrategies, config.save_strategy) +
                             "; the best model can only be one that was evaluated, so they must be the same");
    return;
  }
  if (config.save_strategy == SaveStrategy::kSteps) {
    const double eval_steps = recipe.train.eval_steps.value_or(recipe.train.logging_steps);
    if (const std::string problem = misfit(config.save_steps, eval_steps); !problem.empty()) {
      diagnostics.add("checkpoint.save_steps",
                      "must be a multiple of train.eval_steps with load_best_model_at_end, found " +
                          yaml_number(config.save_steps) + " and " + yaml_number(eval_steps) + ": " + problem);
    }
  }
}

}  // namespace

void check_checkpoint(const Recipe& recipe, Diagnostics& diagnostics) {
  const checkpoint::CheckpointConfig& config = recipe.checkpoint;
  if (config.load_best_model_at_end) {
    check_best_schedule(recipe, diagnostics);
  }
  const bool has_evaluations = recipe.train.eval_strategy != EvalStrategy::kNo;
  if (config.save_strategy == SaveStrategy::kBest && !has_evaluations) {
    diagnostics.add("checkpoint.save_strategy", "best needs evaluations, but train.eval_strategy is no");
  }
  if (recipe.train.early_stopping_patience) {
    if (!has_evaluations) {
      diagnostics.add("train.early_stopping_patience", "needs evaluations, but train.eval_strategy is no");
    }
    if (!config.metric_for_best_model && !config.load_best_model_at_end) {
      diagnostics.add("train.early_stopping_patience",
                      "needs checkpoint.metric_for_best_model, the metric that shall improve");
    }
  } else if (recipe.train.early_stopping_threshold != 0.0) {
    diagnostics.add("train.early_stopping_threshold", "has no effect without train.early_stopping_patience");
  }
}

}  // namespace stft::recipe
