#include "train/step.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <utility>

#include "base/rng.h"
#include "checkpoint/optimizer_state.h"
#include "model/token_batch.h"
#include "optim/clip.h"
#include "train/batch_loss.h"

namespace stft::train {
namespace {

struct Totals {
  double loss = 0;
  double squared_norm = 0;
  double tokens = 0;
  double stop_requests = 0;
};

// Collective.
Totals reduce_totals(Totals local, Mesh& mesh) {
  auto values = at::empty({4}, at::kDouble);
  values.data_ptr<double>()[0] = local.loss;
  values.data_ptr<double>()[1] = local.squared_norm;
  values.data_ptr<double>()[2] = local.tokens;
  values.data_ptr<double>()[3] = local.stop_requests;
  mesh.world().all_reduce_sum(values).wait();
  const auto* totals = values.data_ptr<double>();
  return {totals[0], totals[1], totals[2], totals[3]};
}

std::vector<model::TextKey> text_keys(const data::TokenizedTexts& texts) {
  std::vector<model::TextKey> keys;
  for (size_t i = 0; i < texts.rows.size(); ++i) {
    keys.push_back({texts.rows[i], texts.columns[i]});
  }
  return keys;
}

}  // namespace

StepRunner::StepRunner(const model::SentenceModel& model, shard::ShardEngine& engine, optim::Optimizer& optimizer,
                       Mesh& mesh, StepOptions options)
    : model_(model), engine_(engine), optimizer_(optimizer), mesh_(mesh), options_(std::move(options)) {}

double StepRunner::run_micro_batch(const data::LocalMicroBatch& batch) {
  const auto tokens = model::make_token_batch(batch.texts.ids, batch.texts.offsets, text_keys(batch.texts),
                                              options_.layout, batch.texts.prompt_lengths);
  model::ForwardContext context;
  context.observer = &engine_;
  context.recomputes = options_.recomputes;
  if (options_.has_dropout) {
    context.dropout = model::DropoutPlan{rng::micro_step_key(options_.seed, batch.micro_step)};
  }
  const auto embeddings = model_.embed(tokens, context);
  const double weight = static_cast<double>(batch.global_rows) / static_cast<double>(batch.step_rows);
  const auto loss = batch_loss(options_.loss, batch, embeddings, mesh_.world()) * weight;
  torch::autograd::backward({loss}, {});
  return loss.item<double>();
}

double StepRunner::accumulate(const data::LocalStep& step) {
  engine_.clear_gradients();
  double loss = 0;
  for (size_t i = 0; i < step.micro_batches.size(); ++i) {
    const bool is_last = i + 1 == step.micro_batches.size();
    engine_.set_gradient_sync(is_last || options_.reduces_every_micro_batch);
    loss += run_micro_batch(step.micro_batches[i]);
  }
  engine_.finish_gradients();
  return loss;
}

StepResult StepRunner::run(const data::LocalStep& step, double rate_factor,
                           const std::function<bool()>& is_stop_requested) {
  Totals local;
  local.loss = accumulate(step);
  const auto parameters = engine_.local_parameters();
  const auto updates = checkpoint::updates_of(parameters, {true, options_.learning_rate});
  std::vector<at::Tensor> gradients;
  for (const shard::LocalParameter& parameter : parameters) {
    if (parameter.gradient.defined() && parameter.copy == 0) {  // what several ranks hold counts once
      gradients.push_back(parameter.gradient);
    }
  }
  local.squared_norm = optim::squared_norm(gradients);
  for (const auto& batch : step.micro_batches) {
    local.tokens += batch.local.count > 0 ? static_cast<double>(batch.texts.offsets.back()) : 0.0;
  }
  local.stop_requests = is_stop_requested && is_stop_requested() ? 1 : 0;
  const Totals total = reduce_totals(local, mesh_);

  StepResult result;
  result.loss = total.loss;
  result.grad_norm = std::sqrt(total.squared_norm);
  result.tokens = static_cast<int64_t>(total.tokens);
  result.is_stop_requested = total.stop_requests > 0;
  result.is_finite = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
  if (result.is_finite) {
    optimizer_.step(updates, rate_factor, optim::clip_coefficient(result.grad_norm, options_.max_grad_norm));
  }
  engine_.clear_gradients();
  return result;
}

}  // namespace stft::train
