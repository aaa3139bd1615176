#include "eval.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/manifest.h"
#include "dist/launch.h"
#include "exit_codes.h"
#include "locate_model.h"
#include "rank_process.h"
#include "recipe/files.h"
#include "saved_recipe.h"
#include "standard_output.h"
#include "train/console.h"
#include "train/evaluation.h"
#include "train/handshake.h"
#include "train/mesh.h"
#include "train/run.h"

namespace stft::app {
namespace {

std::string to_text(const eval::NamedValues& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics) {
    text += fmt::format("{} {:.9g}\n", name, value);
  }
  return text;
}

std::string to_json(const eval::NamedValues& metrics) {
  nlohmann::ordered_json values = nlohmann::ordered_json::object();
  for (const auto& [name, value] : metrics) {
    values[name] = std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
  }
  return nlohmann::ordered_json{{"metrics", values}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

}  // namespace

recipe::Recipe evaluation_recipe(const EvalOptions& options) {
  if (const std::string problem = recipe::model_problem(options.model); !problem.empty()) {
    throw UserError(problem);
  }
  if (!options.recipe_path && recipe::is_hub_model(options.model)) {
    throw UserError(fmt::format(
        "no such directory '{}'; if it is a hub's model, name a recipe with evaluators by --recipe", options.model));
  }
  // A JSON string is a YAML string; ${...} in it would be expanded, so a path with one must come by --recipe.
  const auto quoted = [](const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  std::vector<std::string> overrides = {"model={name_or_path: " + quoted(options.model) +
                                        ", revision: " + quoted(options.revision) + "}"};
  overrides.insert(overrides.end(), options.overrides.begin(), options.overrides.end());
  if (options.nproc) {
    overrides.push_back(fmt::format("launch.nproc={}", *options.nproc));
  }
  const auto found = options.recipe_path ? options.recipe_path : saved_recipe(options.model);
  if (!found) {
    throw UserError(fmt::format("'{}' has no {} with it; name a recipe with evaluators by --recipe", options.model,
                                checkpoint::kRecipeFile));
  }
  const std::string& path = *found;
  recipe::Recipe recipe = recipe::load(path, overrides, recipe::Purpose::kEvaluation);
  if (recipe.evaluators.empty() && recipe.data.eval.empty()) {
    throw UserError(fmt::format("{}: evaluators is empty, so there is nothing to evaluate", path));
  }
  return recipe;
}

eval::NamedValues evaluate_on_ranks(recipe::Recipe recipe, const dist::RankInfo& info) {
  configure_log(info);
  at::set_num_threads(static_cast<int>(threads_per_rank(recipe.launch.threads_per_rank, info.local_world_size)));
  auto world = train::join_world(info, recipe.launch);
  auto facts = opening_facts("evaluation");
  facts.push_back(train::recipe_fact(recipe));
  train::agree_on_facts(*world, facts);
  recipe = with_located_model(std::move(recipe), info, *world, recipe::Purpose::kEvaluation);
  train::Run run = train::assemble_evaluation(std::move(recipe), std::move(world));
  train::EvaluationRunner runner(train::evaluation_parts(run));
  const auto evaluation = runner.run({});
  STFT_CHECK(evaluation.has_value(), "nothing stops this evaluation");
  if (info.rank == 0) {
    for (const auto& result : evaluation->results) {
      for (const std::string& warning : result.warnings) {
        log::warn(warning);
      }
    }
    log::info(fmt::format("evaluation of {} ({:.1f} s)\n{}", run.recipe.model.name_or_path, evaluation->seconds,
                          train::evaluation_table(evaluation->results)));
  }
  return evaluation->metrics;
}

int run_eval(const EvalOptions& options, const std::vector<std::string>& arguments) {
  const auto info = dist::rank_from_environment();
  if (info && info->launcher_pid) {
    dist::join_launcher(*info->launcher_pid);
  }
  recipe::Recipe recipe = evaluation_recipe(options);
  if (!info) {
    const int64_t nproc = recipe.launch.nproc.value_or(1);
    recipe = with_located_model(std::move(recipe), recipe::Purpose::kEvaluation);  // the ranks then find this commit
    return dist::launch(
        {with_revision_set(arguments, recipe), nproc, threads_per_rank(recipe.launch.threads_per_rank, nproc)});
  }
  try {
    const auto metrics = evaluate_on_ranks(std::move(recipe), *info);
    if (info->rank == 0) {
      write_result(options.prints_json ? to_json(metrics) : to_text(metrics));
    }
    return kDone;
  } catch (const c10::Error& error) {
    translate(error);
  }
}

}  // namespace stft::app
