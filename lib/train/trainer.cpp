#include "train/trainer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/export_model.h"
#include "checkpoint/stored_model.h"
#include "train/handshake.h"
#include "train/replicas.h"
#include "train/run_quantization.h"
#include "train/saving.h"

namespace stft::train {
namespace {

StepOptions step_options(const Run& run) {
  const recipe::Recipe& recipe = run.recipe;
  StepOptions options;
  options.seed = recipe.run.seed;
  options.loss = recipe.loss;
  options.learning_rate = recipe.optim.learning_rate;
  options.max_grad_norm = recipe.optim.max_grad_norm;
  options.layout = layout_of(recipe.train.packing);
  options.recomputes = recipe.train.gradient_checkpointing;
  options.reduces_every_micro_batch = run.reduces_every_micro_batch;
  return options;
}

// A number below 1 is a ratio of all steps.
int64_t interval(double value, int64_t total_steps) {
  const double steps = value < 1 ? std::ceil(value * static_cast<double>(total_steps)) : value;
  return std::max<int64_t>(1, static_cast<int64_t>(steps));
}

}  // namespace

Trainer::Trainer(Run& run, std::function<bool()> is_stop_requested)
    : run_(run),
      is_stop_requested_(std::move(is_stop_requested)),
      runner_(*run.model, *run.engine, *run.optimizer, *run.mesh, step_options(run)),
      evaluation_(evaluation_parts(run)),
      reporter_(run),
      best_rule_(best_rule(run.recipe)) {
  const recipe::TrainConfig& train = run.recipe.train;
  const int64_t total_steps = run.plan->total_steps();
  logging_steps_ = interval(train.logging_steps, total_steps);
  eval_steps_ = interval(train.eval_steps.value_or(train.logging_steps), total_steps);
  save_steps_ = interval(run.recipe.checkpoint.save_steps, total_steps);
  if (run.recipe.checkpoint.load_best_model_at_end && train.eval_strategy == recipe::EvalStrategy::kSteps) {
    // Ratios were rounded one by one; every save still falls on an evaluation.
    save_steps_ = (save_steps_ + eval_steps_ - 1) / eval_steps_ * eval_steps_;
  }
  if (run.resumed) {
    state_ = run.resumed->state;
    state_.stops_early = train.early_stopping_patience &&
                         state_.best_progress.evaluations_without_improvement >= *train.early_stopping_patience;
    if (!run.resumed->is_in_place && is_last() && run.recipe.checkpoint.load_best_model_at_end) {
      throw UserError(
          fmt::format("--resume: '{}' is the end of its run, so there is nothing to train and no best "
                      "checkpoint to load in another output_dir; set train.max_steps or num_train_epochs "
                      "higher, or export the checkpoint",
                      run.resumed->checkpoint));
    }
    resumable_step_ = run.resumed->is_in_place ? state_.position.step : -1;
  } else {
    state_.is_evaluation_pending = train.eval_on_start && evaluation_.has_work();
  }
  state_.data_fingerprint = run.data_fingerprint;
}

Outcome Trainer::train() {
  reporter_.start(state_);
  if (agree_to_stop()) {
    return stop();
  }
  // A resumed run may have reached its end at a step that was no end before.
  const bool is_end_due = is_last() && evaluates_now() && state_.evaluated_step != state_.position.step;
  if ((state_.is_evaluation_pending || is_end_due) && !evaluate_and_save()) {
    return stop();
  }
  while (!is_last()) {
    const auto step = run_.loader->next();
    STFT_CHECK(step.has_value(), "the loader has every step of the plan");
    take_step(*step);
    if (logs_now()) {
      reporter_.log_step(state_, last_step_);
    }
    if (!evaluate_and_save()) {
      return stop();
    }
    if (last_step_.result.is_stop_requested && !is_last()) {
      return stop();
    }
  }
  return finish();
}

// Collective.
bool Trainer::agree_to_stop() {
  auto requests = at::zeros({1}, at::kLong);
  requests.fill_(is_stop_requested_ && is_stop_requested_() ? 1 : 0);
  run_.mesh->world().all_reduce_sum(requests).wait();
  return requests.item<int64_t>() > 0;
}

void Trainer::take_step(const data::LocalStep& step) {
  if (run_.recipe.run.debug_collectives) {
    agree_on_facts(run_.mesh->world(), {batch_fact(step)});
  }
  const double start = monotonic_seconds();
  const auto counts = run_.mesh->counts();
  last_step_.learning_rate = run_.schedule->learning_rate(state_.position.step);
  last_step_.result = runner_.run(step, run_.schedule->factor(state_.position.step), is_stop_requested_);
  const StepResult& result = last_step_.result;
  if (!result.is_finite && run_.recipe.train.on_nonfinite == recipe::OnNonfinite::kStop) {
    throw SystemError(fmt::format("step {}: the loss is {} and the gradient norm {}; stopped before the update",
                                  state_.position.step + 1, std::fabs(result.loss), std::fabs(result.grad_norm)));
  }
  state_.position = step.end;
  state_.epoch = step.epoch_after;
  if (result.is_finite) {
    state_.since_log.loss_sum += result.loss;
    state_.since_log.steps += 1;
  }
  state_.since_log.rows += step.rows;
  state_.since_log.tokens += result.tokens;
  const double seconds = monotonic_seconds() - start;
  state_.since_log.seconds += seconds;
  state_.train_seconds += seconds;
  if (!result.is_finite) {
    reporter_.skipped(state_, last_step_);
  }
  if (run_.recipe.run.debug_collectives) {
    reporter_.collectives(state_, run_.mesh->counts() - counts);
  }
  reporter_.progress(state_, last_step_, logs_now());
}

bool Trainer::logs_now() const {
  return state_.position.step % logging_steps_ == 0 || is_last();
}

bool Trainer::evaluates_now() const {
  if (state_.is_evaluation_pending) {
    return true;
  }
  switch (run_.recipe.train.eval_strategy) {
    case recipe::EvalStrategy::kNo:
      return false;
    case recipe::EvalStrategy::kSteps:
      return is_last() || state_.position.step % eval_steps_ == 0;
    case recipe::EvalStrategy::kEpoch:
      return is_last() || ends_epoch();
  }
  throw_internal("known strategy", "");
}

bool Trainer::saves_now(bool is_new_best) const {
  if (state_.position.step == 0) {
    return false;
  }
  switch (run_.recipe.checkpoint.save_strategy) {
    case checkpoint::SaveStrategy::kNo:
      return false;
    case checkpoint::SaveStrategy::kSteps:
      return is_last() || state_.position.step % save_steps_ == 0;
    case checkpoint::SaveStrategy::kEpoch:
      return is_last() || ends_epoch();
    case checkpoint::SaveStrategy::kBest:
      return is_last() || is_new_best;
  }
  throw_internal("known strategy", "");
}

// What is due after a step. False when the evaluation was interrupted; it stays due.
bool Trainer::evaluate_and_save() {
  std::optional<Evaluation> evaluation;
  bool is_new_best = false;
  if (evaluates_now() && evaluation_.has_work()) {
    evaluation = evaluate();
    if (!evaluation) {
      state_.is_evaluation_pending = true;
      return false;
    }
    state_.is_evaluation_pending = false;
    reporter_.evaluated(state_, *evaluation);
    is_new_best = note_value(*evaluation);
    if (state_.position.step == 0) {
      first_evaluation_ = *evaluation;
      for (const auto& result : evaluation->results) {
        state_.first_values.emplace_back(result.primary, result.primary_value());
      }
    }
    last_evaluation_ = std::move(*evaluation);
    state_.evaluated_step = state_.position.step;
  }
  if (saves_now(is_new_best)) {
    save(Occasion::kScheduled);
  }
  return true;
}

// Whether the evaluation is the best so far; also whether the run goes on.
bool Trainer::note_value(const Evaluation& evaluation) {
  if (!best_rule_ || state_.position.step == 0) {
    return false;
  }
  const auto found = find_metric(evaluation.metrics, best_rule_->metric);
  if (!found) {
    throw SystemError(fmt::format("the evaluation at step {} gave no '{}' (metric_for_best_model)",
                                  state_.position.step, best_rule_->metric));
  }
  const BestVerdict verdict = observe(*best_rule_, state_.best_progress, found->value);
  state_.best_progress = verdict.progress;
  if (verdict.is_exhausted && !is_last()) {
    state_.stops_early = true;
    if (run_.mesh->world().rank() == 0) {
      log::info(fmt::format("stopping early: {} evaluations without a better {}",
                            state_.best_progress.evaluations_without_improvement, found->metric));
    }
  }
  return verdict.is_new_best;
}

std::optional<Evaluation> Trainer::evaluate() {
  reporter_.evaluating(state_);
  return evaluation_.run(is_stop_requested_);
}

void Trainer::save(Occasion occasion) {
  const double start = monotonic_seconds();
  const std::string name = checkpoint::checkpoint_name(state_.position.step);
  SaveRequest request{state_, facts()};
  // A run that was asked to stop goes on from here, so this checkpoint has everything.
  request.with_optimizer = occasion == Occasion::kStopping || !run_.recipe.checkpoint.save_only_model;
  if (state_.evaluated_step == state_.position.step && !last_evaluation_.metrics.empty()) {
    request.metrics = last_evaluation_.metrics;
    const auto found = best_rule_ ? find_metric(request.metrics, best_rule_->metric) : std::nullopt;
    if (found && std::isfinite(found->value)) {
      request.score = {found->metric, found->value, best_rule_->greater_is_better};
      // What is saved only because the run stops would not be there without the stop.
      const bool is_candidate = occasion == Occasion::kScheduled;
      if (is_candidate && (!state_.best || is_better(*best_rule_, found->value, state_.best->value))) {
        state_.best = {name, found->metric, found->value};
      }
    }
  }
  if (state_.stop_checkpoint != name) {
    request.replaces = state_.stop_checkpoint;
  }
  const bool is_extra = occasion == Occasion::kStopping && scheduled_step_ != state_.position.step;
  state_.stop_checkpoint = is_extra ? std::optional(name) : std::nullopt;
  const uint64_t checksum = save_checkpoint(run_, request);
  scheduled_step_ = occasion == Occasion::kScheduled ? state_.position.step : scheduled_step_;
  resumable_step_ = request.with_optimizer ? state_.position.step : resumable_step_;
  reporter_.saved(state_, {name, checksum, monotonic_seconds() - start});
}

Outcome Trainer::stop() {
  if (resumable_step_ != state_.position.step) {
    save(Occasion::kStopping);
  }
  reporter_.stopped(state_, checkpoint::checkpoint_name(state_.position.step));
  return Outcome::kStopped;
}

Outcome Trainer::finish() {
  if (run_.recipe.checkpoint.load_best_model_at_end && !reload_best()) {
    return stop();
  }
  const std::string final_dir = (std::filesystem::path(run_.recipe.run.output_dir) / "final").string();
  check_replicas(*run_.engine, *run_.mesh, "before writing final/");
  check_quantized_base(run_);
  checkpoint::export_model(
      {*run_.model, *run_.weights, *run_.engine, run_.mesh->world(), adapter_of(run_), quantization_texts(run_)},
      final_dir);
  write_trainer_state(run_, {state_, facts()});
  reporter_.finished(state_, first_evaluation_, last_evaluation_);
  return Outcome::kDone;
}

// Collective: fills the model from the best checkpoint and proves that it is what was measured. False when a rank was
// asked to stop meanwhile.
bool Trainer::reload_best() {
  if (!state_.best) {
    throw SystemError(
        fmt::format("load_best_model_at_end: no saved checkpoint has a value of {}, so there is no best "
                    "model to load; the last checkpoint has the last weights",
                    best_rule_->metric));
  }
  const std::string path = (std::filesystem::path(run_.recipe.run.output_dir) / state_.best->checkpoint).string();
  checkpoint::Attempt attempt(run_.mesh->world(), "reloading '" + path + "'");
  attempt.run([&] {
    const bool is_first = run_.mesh->world().rank() == 0;
    const auto stored = checkpoint::StoredModel::open(
        path, is_first ? checkpoint::FileCheck::kChecksums : checkpoint::FileCheck::kSizes, base_of_checkpoints(run_));
    run_.engine->fill(rows_of_checkpoint(run_, stored));
  });
  attempt.agree();
  // From here on the model is not the run's state, so a stop is possible only where that is saved already.
  if (resumable_step_ != state_.position.step) {
    is_stop_requested_ = nullptr;
  }
  auto evaluation = evaluate();
  if (!evaluation) {
    return false;
  }
  reporter_.evaluated_best(state_, *evaluation);
  const auto found = find_metric(evaluation->metrics, state_.best->metric);
  const double recorded = state_.best->value;
  if (!found || !is_recorded_value(found->value, recorded)) {
    throw SystemError(
        fmt::format("the reloaded '{}' is not what was measured: {} is {}, recorded {}; final/ is not "
                    "written",
                    path, state_.best->metric, found ? fmt::format("{:.9g}", found->value) : "missing", recorded));
  }
  last_evaluation_ = std::move(*evaluation);
  return true;
}

}  // namespace stft::train
