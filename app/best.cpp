#include "best.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/export_model.h"
#include "dist/launch.h"
#include "eval.h"
#include "exit_codes.h"
#include "io/directory.h"
#include "output_directory.h"
#include "rank_process.h"
#include "standard_output.h"
#include "train/saving.h"

namespace stft::app {
namespace {

checkpoint::FoundBest find(const BestOptions& options, bool tells) {
  if (!io::is_directory(options.run_directory)) {
    throw UserError(fmt::format("'{}' is not a directory", options.run_directory));
  }
  auto found = checkpoint::find_best(options.run_directory);
  if (tells && found.is_fallback) {
    for (const std::string& line : found.skipped) {
      log::warn("passing over " + line);
    }
    log::warn(fmt::format(
        "best.json is missing or names no checkpoint that can be used; the best of the others is '{}'", found.path));
  }
  return found;
}

EvalOptions eval_options(const BestOptions& options, const checkpoint::FoundBest& found) {
  EvalOptions result;
  result.model = found.path;
  result.nproc = options.nproc;
  return result;
}

void finish(const BestOptions& options, const checkpoint::FoundBest& found, std::optional<double> evaluated) {
  if (options.out) {
    const std::string out = output_directory(*options.out, found.path, options.overwrites);
    checkpoint::export_directory(found.path, {checkpoint::WeightPrecision::kAsInput, out});
    log::info("the model is in " + *options.out);
  }
  nlohmann::ordered_json json = {
      {"checkpoint", found.path}, {"metric", found.score.metric}, {"value", found.score.value}};
  if (evaluated) {
    json["evaluated"] = *evaluated;
  }
  write_result(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

int prove(const BestOptions& options, const dist::RankInfo& info) {
  const checkpoint::FoundBest found = find(options, info.rank == 0);
  const auto metrics = evaluate_on_ranks(evaluation_recipe(eval_options(options, found)), info);
  if (info.rank != 0) {
    return kDone;
  }
  const auto measured = train::find_metric(metrics, found.score.metric);
  if (!measured || !train::is_recorded_value(measured->value, found.score.value)) {
    throw SystemError(fmt::format("'{}' is not what was measured: {} is {}, recorded {:.9g}", found.path,
                                  found.score.metric, measured ? fmt::format("{:.9g}", measured->value) : "missing",
                                  found.score.value));
  }
  finish(options, found, measured->value);
  return kDone;
}

}  // namespace

int run_best(const BestOptions& options, const std::vector<std::string>& arguments) {
  const auto info = options.evaluates ? dist::rank_from_environment() : std::nullopt;
  if (info && info->launcher_pid) {
    dist::join_launcher(*info->launcher_pid);
  }
  if (info) {
    try {
      return prove(options, *info);
    } catch (const c10::Error& error) {
      translate(error);
    }
  }
  const checkpoint::FoundBest found = find(options, !options.evaluates);
  if (options.out) {
    output_directory(*options.out, found.path, options.overwrites);  // a refusal comes before the work
  }
  if (!options.evaluates) {
    finish(options, found, std::nullopt);
    return kDone;
  }
  const recipe::Recipe recipe = evaluation_recipe(eval_options(options, found));
  const int64_t nproc = recipe.launch.nproc.value_or(1);
  return dist::launch({arguments, nproc, threads_per_rank(recipe.launch.threads_per_rank, nproc)});
}

}  // namespace stft::app
