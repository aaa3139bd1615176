#include "train/reporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "base/log.h"
#include "checkpoint/manifest.h"
#include "eval/ir_metrics.h"
#include "io/directory.h"
#include "io/file.h"
#include "recipe/choices.h"
#include "train/console.h"
#include "train/memory_report.h"

namespace stft::train {
namespace {

// "full_shard", "hybrid_shard (2 x 4)": what the run does, auto resolved.
std::string strategy_name(Run& run) {
  const bool keeps =
      run.sharding.strategy == shard::Strategy::kFullShard && run.sharding.reshard_after_forward == false;
  const auto strategy = keeps ? shard::Strategy::kShardGradOp : run.sharding.strategy;
  const std::string name = recipe::name_of(recipe::kStrategies, strategy);
  const bool is_hybrid = run.sharding.strategy == shard::Strategy::kHybridShard;
  return is_hybrid ? fmt::format("{} ({} x {})", name, run.mesh->replicate().size(), run.mesh->shard().size()) : name;
}

int64_t trainable_parameters(const model::ParameterTable& table) {
  int64_t count = 0;
  for (const model::Parameter& parameter : table) {
    count += parameter.is_trainable ? parameter.numel() : 0;
  }
  return count;
}

// `compared`: what a row of a micro-batch is compared with, itself included.
void tell_about_batches(bool ranks_candidates, int64_t compared, int64_t accumulation) {
  if (compared < 2) {
    log::warn(fmt::format(
        "{}, so the loss is 0 and nothing is learned; use a larger batch",
        ranks_candidates ? "every anchor has a single candidate" : "a batch of one row has no two rows to order"));
  } else if (accumulation > 1) {
    log::info(fmt::format("gradient accumulation does not add {} from one micro-batch",
                          ranks_candidates ? "negatives: candidates come" : "pairs of rows: they come"));
  }
}

std::string hex(uint64_t checksum) {
  return fmt::format("{:016x}", checksum);
}

double per_second(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

nlohmann::ordered_json number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

}  // namespace

Reporter::Reporter(Run& run) : run_(run), is_writer_(run.mesh->world().rank() == 0) {
  if (!is_writer_) {
    return;
  }
  const std::string& output_dir = run.recipe.run.output_dir;
  io::make_directories(output_dir);
  if (run.recipe.run.report_jsonl) {
    const bool goes_on = run.resumed && run.resumed->is_in_place;
    log_ = std::make_unique<RunLog>(output_dir, goes_on ? RunLog::Start::kAppend : RunLog::Start::kAnew);
  }
  io::write_file((std::filesystem::path(output_dir) / checkpoint::kRecipeFile).string(), recipe::dump(run.recipe));
}

void Reporter::start(const RunState& state) {
  const recipe::TrainConfig& train = run_.recipe.train;
  const int64_t ranks = run_.mesh->world().size();
  const int64_t micro_rows = std::min(train.per_device_train_batch_size * ranks, run_.dataset->size());
  const int64_t trainable = trainable_parameters(run_.model->parameters());
  const auto memory = planned_memory(run_);
  if (!is_writer_) {
    return;
  }
  const bool ranks_candidates = run_.recipe.loss.type == loss::LossType::kMultipleNegativesRanking;
  const int64_t candidates = micro_rows * (1 + run_.dataset->max_negatives());
  if (log_) {
    LogFields fields = {{"world_size", ranks},
                        {"parameters_checksum", hex(run_.parameters_checksum)},
                        {"trainable_parameters", trainable}};
    if (run_.adapter) {
      const auto counts = peft::count_parameters(run_.model->parameters());
      fields.emplace_back("all_parameters", counts.all);
      fields.emplace_back("trainable_percent",
                          100.0 * static_cast<double>(counts.trainable) / static_cast<double>(counts.all));
      fields.emplace_back("adapted_modules", static_cast<int64_t>(run_.adapter->adapter.modules.size()));
    }
    if (run_.quantized) {
      fields.emplace_back("quantized_base_hash", hex(run_.quantized_base_hash));
    }
    if (ranks_candidates) {
      fields.emplace_back("candidates_per_anchor", candidates);
    }
    fields.emplace_back("total_steps", run_.plan->total_steps());
    fields.emplace_back("step", state.position.step);
    fields.emplace_back("strategy", strategy_name(run_));
    fields.emplace_back("memory", memory);
    if (run_.resumed) {
      fields.emplace_back("resumed_from",
                          std::filesystem::path(run_.resumed->checkpoint).lexically_normal().filename().string());
    }
    log_->write("start", fields);
  }
  const bool has_limit = run_.model->max_seq_length() < std::numeric_limits<int32_t>::max();
  log::info(fmt::format(
      "model {}: {} trainable parameters, {}", run_.recipe.model.name_or_path, format_count(trainable),
      has_limit ? fmt::format("at most {} tokens a text", run_.model->max_seq_length()) : "texts of any length"));
  log::info(fmt::format("data {}: {} rows; {} ranks, {}; {} steps of {} rows{}", run_.dataset->name(),
                        format_count(run_.dataset->size()), ranks, strategy_name(run_),
                        format_count(run_.plan->total_steps()), micro_rows * train.gradient_accumulation_steps,
                        ranks_candidates ? fmt::format(", {} candidates per anchor", candidates) : ""));
  tell_about_batches(ranks_candidates, ranks_candidates ? candidates : micro_rows, train.gradient_accumulation_steps);
  if (run_.resumed) {
    log::info(fmt::format("going on from {}: step {} of {}, epoch {:.3f}", run_.resumed->checkpoint,
                          state.position.step, run_.plan->total_steps(), state.epoch));
  }
}

void Reporter::progress(const RunState& state, const StepReport& step, bool is_milestone) {
  if (!is_writer_) {
    return;
  }
  const int64_t done = state.position.step;
  const double per_step = state.train_seconds / static_cast<double>(done);
  show_progress({done, run_.plan->total_steps(), step.result.loss, step.learning_rate,
                 per_second(state.since_log.rows, state.since_log.seconds),
                 per_step * static_cast<double>(run_.plan->total_steps() - done)},
                is_milestone);
}

void Reporter::skipped(const RunState& state, const StepReport& step) {
  skipped_steps_ += 1;
  if (log_) {
    log_->write("skip", {{"step", state.position.step},
                         {"epoch", state.epoch},
                         {"loss", step.result.loss},
                         {"grad_norm", step.result.grad_norm},
                         {"learning_rate", step.learning_rate}});
  }
  if (is_writer_) {
    log::warn(fmt::format("step {}: the loss is {} and the gradient norm {}; skipped, nothing was updated",
                          state.position.step, std::fabs(step.result.loss), std::fabs(step.result.grad_norm)));
  }
}

void Reporter::collectives(const RunState& state, const dist::CollectiveCounts& counts) {
  if (log_) {
    log_->write("collectives", {{"step", state.position.step},
                                {"all_gathers", counts.all_gathers},
                                {"reduce_scatters", counts.reduce_scatters},
                                {"all_reduces", counts.all_reduces},
                                {"bytes", counts.bytes}});
  }
  if (is_writer_) {
    log::info(fmt::format("step {}: {} all-gathers, {} reduce-scatters, {} all-reduces, {} bytes", state.position.step,
                          counts.all_gathers, counts.reduce_scatters, counts.all_reduces, format_count(counts.bytes)));
  }
}

void Reporter::log_step(RunState& state, const StepReport& step) {
  const LogTotals& since = state.since_log;
  // Of the steps that were not skipped; null in the log when there was none.
  const double loss =
      since.steps > 0 ? since.loss_sum / static_cast<double>(since.steps) : std::numeric_limits<double>::quiet_NaN();
  const auto memory = measured_memory(run_);
  if (log_) {
    log_->write("step", {{"step", state.position.step},
                         {"epoch", state.epoch},
                         {"loss", loss},
                         {"grad_norm", step.result.grad_norm},
                         {"learning_rate", step.learning_rate},
                         {"samples_per_s", per_second(since.rows, since.seconds)},
                         {"tokens_per_s", per_second(since.tokens, since.seconds)},
                         {"memory", memory}});
  }
  state.history.push_back({{"epoch", state.epoch},
                           {"grad_norm", number(step.result.grad_norm)},
                           {"learning_rate", step.learning_rate},
                           {"loss", number(loss)},
                           {"step", state.position.step}});
  state.since_log = {};
}

void Reporter::evaluating(const RunState& state) {
  if (is_writer_) {
    log::live(fmt::format("step {}/{}  evaluating ...", state.position.step, run_.plan->total_steps()));
  }
}

void Reporter::show_table(const RunState& state, const Evaluation& evaluation, const std::string& what) {
  for (const auto& result : evaluation.results) {
    for (const std::string& warning : result.warnings) {
      log::warn(warning);
    }
  }
  log::info(fmt::format("evaluation {}at step {} ({:.1f} s)\n{}", what, state.position.step, evaluation.seconds,
                        evaluation_table(evaluation.results)));
}

void Reporter::evaluated(RunState& state, const Evaluation& evaluation) {
  nlohmann::ordered_json entry = {{"epoch", state.epoch}};
  for (const auto& [name, value] : evaluation.metrics) {
    entry[with_eval_prefix(name)] = number(value);
  }
  entry["eval_runtime"] = evaluation.seconds;
  entry["step"] = state.position.step;
  state.history.push_back(std::move(entry));
  if (!is_writer_) {
    return;
  }
  for (const auto& result : evaluation.results) {
    if (result.csv) {
      write_evaluation_csv(run_.recipe.run.output_dir, *result.csv, state.epoch, state.position.step);
    }
  }
  if (log_) {
    log_->write("eval", {{"step", state.position.step},
                         {"epoch", state.epoch},
                         {"seconds", evaluation.seconds},
                         {"metrics", evaluation.metrics}});
  }
  show_table(state, evaluation, "");
}

void Reporter::evaluated_best(const RunState& state, const Evaluation& evaluation) {
  if (log_) {
    log_->write("eval", {{"step", state.position.step},
                         {"epoch", state.epoch},
                         {"reloaded", state.best->checkpoint},
                         {"seconds", evaluation.seconds},
                         {"metrics", evaluation.metrics}});
  }
  if (is_writer_) {
    show_table(state, evaluation, "of the reloaded " + state.best->checkpoint + " ");
  }
}

void Reporter::saved(const RunState& state, const SaveReport& save) {
  if (log_) {
    log_->write("save", {{"step", state.position.step},
                         {"checkpoint", save.checkpoint},
                         {"parameters_checksum", hex(save.parameters_checksum)},
                         {"seconds", save.seconds}});
  }
  if (is_writer_) {
    const bool is_best = state.best && state.best->checkpoint == save.checkpoint;
    log::info(
        fmt::format("saved {} ({:.1f} s){}", save.checkpoint, save.seconds,
                    is_best ? fmt::format(", the best so far: {} {:.4f}", state.best->metric, state.best->value) : ""));
  }
}

void Reporter::stopped(const RunState& state, const std::string& checkpoint) {
  if (log_) {
    log_->write("stop", {{"step", state.position.step}, {"epoch", state.epoch}, {"checkpoint", checkpoint}});
  }
  if (is_writer_) {
    log::info(fmt::format("stopped after step {} of {}; {} is complete, --resume auto goes on from it",
                          state.position.step, run_.plan->total_steps(), checkpoint));
  }
}

void Reporter::finished(const RunState& state, const Evaluation& first, const Evaluation& last) {
  if (log_) {
    log_->write("end", {{"step", state.position.step}, {"epoch", state.epoch}, {"train_seconds", state.train_seconds}});
  }
  if (!is_writer_) {
    return;
  }
  std::vector<Comparison> comparisons;
  for (size_t i = 0; i < std::min(state.first_values.size(), last.results.size()); ++i) {
    const auto& after = last.results[i];
    if (state.first_values[i].first != after.primary) {
      continue;
    }
    comparisons.push_back({after.primary, state.first_values[i].second, after.primary_value(), std::nullopt});
    // A resumed run knows the numbers from before, not those of every query.
    if (i < first.results.size() && !after.per_query.empty()) {
      comparisons.back().difference =
          eval::paired_bootstrap(first.results[i].per_query, after.per_query, run_.recipe.run.seed);
    }
  }
  if (!comparisons.empty()) {
    log::info("before and after\n" + comparison_table(comparisons));
  }
  if (skipped_steps_ > 0) {
    log::warn(fmt::format("{} of the steps were skipped: their loss or gradient norm was not finite",
                          format_count(skipped_steps_)));
  }
  log::info(fmt::format("trained {} steps in {}; the model is in {}", format_count(state.position.step),
                        format_duration(state.train_seconds),
                        (std::filesystem::path(run_.recipe.run.output_dir) / "final").string()));
}

}  // namespace stft::train
