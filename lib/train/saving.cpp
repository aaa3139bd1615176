#include "train/saving.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/checkpoint_writer.h"
#include "io/checksum.h"
#include "io/directory.h"
#include "io/file.h"
#include "train/replicas.h"
#include "train/run_quantization.h"

namespace stft::train {
namespace {

std::string hash_of(const std::string& text) {
  return io::checksum_of({reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

std::string in_output_dir(const Run& run, const std::string& name) {
  return (std::filesystem::path(run.recipe.run.output_dir) / name).string();
}

// A directory that cannot be removed costs space, not the run.
void remove_old(const recipe::Recipe& recipe, const SaveRequest& request) {
  const std::string& output_dir = recipe.run.output_dir;
  const auto best = request.state.best ? std::optional(request.state.best->checkpoint) : std::nullopt;
  try {
    checkpoint::remove_set_aside(output_dir, request.state.position.step);
    if (request.replaces && request.replaces != best) {
      io::remove_directory((std::filesystem::path(output_dir) / *request.replaces).string());
    }
    if (const auto limit = recipe.checkpoint.save_total_limit) {
      checkpoint::rotate_checkpoints(output_dir, *limit, best);
    }
  } catch (const SystemError& error) {
    log::warn(std::string("an old checkpoint stays: ") + error.what());
  }
}

}  // namespace

uint64_t save_checkpoint(Run& run, const SaveRequest& request) {
  const std::string name = checkpoint::checkpoint_name(request.state.position.step);
  const uint64_t checksum = checked_checksum(*run.engine, *run.mesh, "before saving " + name);
  checkpoint::CheckpointContent content{*run.model, *run.weights, *run.engine, run.mesh->world(), std::nullopt, {}, {}};
  content.adapter = adapter_of(run);
  content.scope =
      run.recipe.checkpoint.adapter_only ? checkpoint::AdapterScope::kAdapterOnly : checkpoint::AdapterScope::kWithBase;
  if (request.with_optimizer) {
    content.optimizer.emplace(checkpoint::OptimizerSource{*run.optimizer, run.recipe.optim,
                                                          run.schedule->factor(request.state.position.step)});
  }
  content.manifest.state_dict_type = run.recipe.checkpoint.state_dict_type;
  content.manifest.step = request.state.position.step;
  content.manifest.metrics = {request.metrics.begin(), request.metrics.end()};
  content.manifest.score = request.score;
  content.manifest.base = run.base;
  if (run.mesh->world().rank() == 0) {
    const std::string recipe = recipe::dump(run.recipe);
    content.manifest.recipe_hash = hash_of(recipe);
    content.texts = {{checkpoint::kRunStateFile, to_json(request.state)},
                     {checkpoint::kTrainerStateFile, trainer_state_json(request.state, request.facts)},
                     {checkpoint::kRecipeFile, recipe}};
    content.texts.merge(quantization_texts(run));
  }
  checkpoint::write_checkpoint(content, in_output_dir(run, name));

  checkpoint::Attempt attempt(run.mesh->world(), "saving '" + name + "'");
  if (run.mesh->world().rank() == 0) {
    attempt.run([&] {
      if (request.state.best) {
        checkpoint::write_best(run.recipe.run.output_dir, *request.state.best);
      }
      write_trainer_state(run, request);
      remove_old(run.recipe, request);
    });
  }
  attempt.agree();
  return checksum;
}

void write_trainer_state(Run& run, const SaveRequest& request) {
  if (run.mesh->world().rank() == 0) {
    io::write_file(in_output_dir(run, checkpoint::kTrainerStateFile), trainer_state_json(request.state, request.facts));
  }
}

std::optional<BestRule> best_rule(const recipe::Recipe& recipe) {
  const checkpoint::CheckpointConfig& config = recipe.checkpoint;
  const bool is_needed = config.load_best_model_at_end || config.save_strategy == checkpoint::SaveStrategy::kBest ||
                         recipe.train.early_stopping_patience.has_value();
  if (!config.metric_for_best_model && !is_needed) {
    return std::nullopt;
  }
  BestRule rule;
  rule.metric = config.metric_for_best_model.value_or("loss");
  rule.greater_is_better = config.greater_is_better.value_or(!rule.metric.ends_with("loss"));
  rule.patience = recipe.train.early_stopping_patience;
  rule.threshold = recipe.train.early_stopping_threshold;
  return rule;
}

bool is_recorded_value(double measured, double recorded) {
  return std::fabs(measured - recorded) <= 1e-6 * std::max(1.0, std::fabs(recorded));
}

std::vector<std::string> metric_spellings(const std::string& name) {
  const std::string bare = name.starts_with("eval_") ? name.substr(5) : name;
  return {name, bare, "eval_" + bare};
}

bool has_same_rule(const BestProgress& progress, const BestRule& rule) {
  return progress.metric.empty() || (metric_spellings(progress.metric)[1] == metric_spellings(rule.metric)[1] &&
                                     progress.greater_is_better == rule.greater_is_better);
}

std::optional<FoundMetric> find_metric(const eval::NamedValues& metrics, const std::string& name) {
  for (const std::string& candidate : metric_spellings(name)) {
    for (const auto& [metric, value] : metrics) {
      if (metric == candidate) {
        return FoundMetric{metric, value};
      }
    }
  }
  return std::nullopt;
}

}  // namespace stft::train
