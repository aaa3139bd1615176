// `stft eval`, and the proof of `stft best --eval`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_store.h"
#include "dist/rank_environment.h"
#include "eval/evaluator.h"
#include "recipe/recipe.h"

namespace stft::app {

struct EvalOptions {
  std::string model;                       // a checkpoint, a model directory, or the id of a hub's model
  std::string revision = "main";           // of a hub's model
  std::optional<std::string> recipe_path;  // none: the recipe saved with the model
  std::vector<std::string> overrides;
  std::optional<int64_t> nproc;
  bool prints_json = false;
};

// Runs the evaluators of a recipe on a model, on all ranks. Returns the exit code.
int run_eval(const EvalOptions& options, const std::vector<std::string>& arguments);

// The recipe to evaluate `options.model` with: its own keys, but the model's, which are those of the directory.
recipe::Recipe evaluation_recipe(const EvalOptions& options);

// Collective: the metrics of the recipe's evaluators. Call it in a rank.
eval::NamedValues evaluate_on_ranks(recipe::Recipe recipe, const dist::RankInfo& info);

}  // namespace stft::app
