#include "train/trainer.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/export_model.h"
#include "io/file.h"
#include "train/console.h"

namespace stft::train {
namespace {

StepOptions step_options(const recipe::Recipe& recipe) {
  StepOptions options;
  options.seed = recipe.run.seed;
  options.loss = recipe.loss;
  options.max_grad_norm = recipe.optim.max_grad_norm;
  options.layout = layout_of(recipe.train.packing);
  // Whole gradients between micro-batches cost what full_shard is there to save.
  options.reduces_every_micro_batch = recipe.sharding.strategy == shard::Strategy::kFullShard;
  return options;
}

// A number below 1 is a ratio of all steps.
int64_t interval(double value, int64_t total_steps) {
  const double steps = value < 1 ? std::ceil(value * static_cast<double>(total_steps)) : value;
  return std::max<int64_t>(1, static_cast<int64_t>(steps));
}

const char* strategy_name(shard::Strategy strategy) {
  return strategy == shard::Strategy::kFullShard ? "full_shard" : "no_shard";
}

// Of this process, so far.
double peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
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

}  // namespace

Trainer::Trainer(Run& run)
    : run_(run),
      runner_(*run.model, *run.engine, *run.optimizer, *run.mesh, step_options(run.recipe)),
      evaluation_(evaluation_parts(run)) {
  const recipe::TrainConfig& train = run.recipe.train;
  logging_steps_ = interval(train.logging_steps, run.plan->total_steps());
  eval_steps_ = interval(train.eval_steps.value_or(train.logging_steps), run.plan->total_steps());
  if (is_writer()) {
    make_output_dir(run.recipe.run.output_dir);
    if (run.recipe.run.report_jsonl) {
      log_ = std::make_unique<RunLog>(run.recipe.run.output_dir);
    }
    io::write_file((std::filesystem::path(run.recipe.run.output_dir) / "recipe.resolved.yaml").string(),
                   recipe::dump(run.recipe));
  }
}

void Trainer::announce() {
  const recipe::TrainConfig& train = run_.recipe.train;
  const int64_t ranks = run_.mesh->world().size();
  const int64_t micro_rows = std::min(train.per_device_train_batch_size * ranks, run_.dataset->size());
  const int64_t trainable = trainable_parameters(run_.model->parameters());
  const std::string checksum = fmt::format("{:016x}", run_.engine->parameters_checksum());
  if (!is_writer()) {
    return;
  }
  const bool ranks_candidates = run_.recipe.loss.type == loss::LossType::kMultipleNegativesRanking;
  const int64_t candidates = micro_rows * (1 + run_.dataset->max_negatives());
  if (log_) {
    LogFields fields = {{"world_size", ranks}, {"parameters_checksum", checksum}, {"trainable_parameters", trainable}};
    if (ranks_candidates) {
      fields.emplace_back("candidates_per_anchor", candidates);
    }
    fields.emplace_back("total_steps", run_.plan->total_steps());
    log_->write("start", fields);
  }
  log::info(fmt::format("model {}: {} trainable parameters, at most {} tokens a text", run_.recipe.model.name_or_path,
                        format_count(trainable), run_.model->max_seq_length()));
  log::info(fmt::format("data {}: {} rows; {} ranks, {}; {} steps of {} rows{}", run_.dataset->name(),
                        format_count(run_.dataset->size()), ranks, strategy_name(run_.recipe.sharding.strategy),
                        format_count(run_.plan->total_steps()), micro_rows * train.gradient_accumulation_steps,
                        ranks_candidates ? fmt::format(", {} candidates per anchor", candidates) : ""));
  tell_about_batches(ranks_candidates, ranks_candidates ? candidates : micro_rows, train.gradient_accumulation_steps);
}

void Trainer::train() {
  announce();
  if (run_.recipe.train.eval_on_start) {
    first_evaluation_ = evaluate();
  }
  while (auto step = run_.loader->next()) {
    take_step(*step);
    const bool is_last = step_ == run_.plan->total_steps();
    const bool ends_epoch = step_ % run_.plan->steps_per_epoch() == 0;
    if (step_ % logging_steps_ == 0 || is_last) {
      log_step();
    }
    if (evaluates_after(step_, ends_epoch, is_last)) {
      last_evaluation_ = evaluate();
    }
  }
  finish();
}

void Trainer::take_step(const data::LocalStep& step) {
  const double start = monotonic_seconds();
  last_learning_rate_ = run_.schedule->learning_rate(step_);
  last_step_ = runner_.run(step, last_learning_rate_);
  if (!last_step_.is_finite) {
    throw SystemError(fmt::format("step {}: the loss is {} and the gradient norm {}; stopped before the update",
                                  step_ + 1, std::fabs(last_step_.loss), std::fabs(last_step_.grad_norm)));
  }
  step_ += 1;
  epoch_ = step.epoch_after;
  loss_sum_ += last_step_.loss;
  steps_since_log_ += 1;
  rows_since_log_ += step.rows;
  tokens_since_log_ += last_step_.tokens;
  const double seconds = monotonic_seconds() - start;
  seconds_since_log_ += seconds;
  train_seconds_ += seconds;
  if (is_writer()) {
    const double per_step = train_seconds_ / static_cast<double>(step_);
    show_progress({step_, run_.plan->total_steps(), last_step_.loss, last_learning_rate_,
                   static_cast<double>(rows_since_log_) / seconds_since_log_,
                   per_step * static_cast<double>(run_.plan->total_steps() - step_)},
                  step_ % logging_steps_ == 0 || step_ == run_.plan->total_steps());
  }
}

void Trainer::log_step() {
  if (log_) {
    log_->write("step", {{"step", step_},
                         {"epoch", epoch_},
                         {"loss", loss_sum_ / static_cast<double>(steps_since_log_)},
                         {"grad_norm", last_step_.grad_norm},
                         {"learning_rate", last_learning_rate_},
                         {"samples_per_s", static_cast<double>(rows_since_log_) / seconds_since_log_},
                         {"tokens_per_s", static_cast<double>(tokens_since_log_) / seconds_since_log_},
                         {"memory", Metrics{{"peak_resident_bytes", peak_resident_bytes()}}}});
  }
  loss_sum_ = 0;
  steps_since_log_ = 0;
  rows_since_log_ = 0;
  tokens_since_log_ = 0;
  seconds_since_log_ = 0;
}

bool Trainer::evaluates_after(int64_t step, bool ends_epoch, bool is_last) const {
  switch (run_.recipe.train.eval_strategy) {
    case recipe::EvalStrategy::kNo:
      return false;
    case recipe::EvalStrategy::kSteps:
      return is_last || step % eval_steps_ == 0;
    case recipe::EvalStrategy::kEpoch:
      return is_last || ends_epoch;
  }
  throw_internal("known strategy", "");
}

std::vector<eval::EvaluationResult> Trainer::evaluate() {
  if (!evaluation_.has_work()) {
    return {};
  }
  if (is_writer()) {
    log::live(fmt::format("step {}/{}  evaluating ...", step_, run_.plan->total_steps()));
  }
  const auto evaluation = evaluation_.run({});
  STFT_CHECK(evaluation.has_value(), "nothing stops this evaluation");
  if (is_writer()) {
    for (const auto& result : evaluation->results) {
      for (const std::string& warning : result.warnings) {
        log::warn(warning);
      }
      if (result.csv) {
        write_evaluation_csv(run_.recipe.run.output_dir, *result.csv, epoch_, step_);
      }
    }
  }
  if (log_) {
    log_->write(
        "eval",
        {{"step", step_}, {"epoch", epoch_}, {"seconds", evaluation->seconds}, {"metrics", evaluation->metrics}});
  }
  if (is_writer()) {
    log::info(fmt::format("evaluation at step {} ({:.1f} s)\n{}", step_, evaluation->seconds,
                          evaluation_table(evaluation->results)));
  }
  return evaluation->results;
}

void Trainer::finish() {
  const std::string final_dir = (std::filesystem::path(run_.recipe.run.output_dir) / "final").string();
  checkpoint::export_model({*run_.model, *run_.weights, *run_.engine, run_.mesh->world()}, final_dir);
  if (log_) {
    log_->write("end", {{"step", step_}, {"epoch", epoch_}, {"train_seconds", train_seconds_}});
  }
  if (!is_writer()) {
    return;
  }
  std::vector<Comparison> comparisons;
  for (size_t i = 0; i < std::min(first_evaluation_.size(), last_evaluation_.size()); ++i) {
    const auto& before = first_evaluation_[i];
    const auto& after = last_evaluation_[i];
    if (before.primary == after.primary) {
      comparisons.push_back({after.primary, before.primary_value(), after.primary_value(), std::nullopt});
      if (!after.per_query.empty()) {
        comparisons.back().difference = eval::paired_bootstrap(before.per_query, after.per_query, run_.recipe.run.seed);
      }
    }
  }
  if (!comparisons.empty()) {
    log::info("before and after\n" + comparison_table(comparisons));
  }
  log::info(fmt::format("trained {} steps in {}; the model is in {}", format_count(step_),
                        format_duration(train_seconds_), final_dir));
}

}  // namespace stft::train
