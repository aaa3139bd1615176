// One optimizer step.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/batch_loader.h"
#include "loss/loss_config.h"
#include "model/sentence_model.h"
#include "optim/optimizer.h"
#include "shard/shard_engine.h"
#include "train/mesh.h"

namespace stft::train {

struct StepOptions {
  uint64_t seed = 0;
  loss::LossConfig loss;
  double learning_rate = 0;    // before the schedule, of parameters without their own
  double max_grad_norm = 1.0;  // 0: no clipping
  model::Layout layout = model::Layout::kPacked;
  bool has_dropout = true;
  bool recomputes = false;                // layers compute again in the backward pass instead of keeping activations
  bool reduces_every_micro_batch = true;  // else once a step, with whole gradients kept in between
};

// Equal on all ranks.
struct StepResult {
  double loss = 0;                 // of the step's rows
  double grad_norm = 0;            // global, before clipping
  int64_t tokens = 0;              // of all ranks, special ones included
  bool is_finite = true;           // false: nothing was updated
  bool is_stop_requested = false;  // on any rank
};

// Borrows everything it is given.
class StepRunner {
 public:
  StepRunner(const model::SentenceModel& model, shard::ShardEngine& engine, optim::Optimizer& optimizer, Mesh& mesh,
             StepOptions options);

  // Collective: forward, loss, backward, one reduction of loss and norm, then the update at the rates times
  // `rate_factor` (the schedule's). Whether the numbers are finite is decided from the reduced values, so all ranks
  // agree; so is whether to stop, from this rank's `is_stop_requested` (may be empty), asked as late as possible.
  StepResult run(const data::LocalStep& step, double rate_factor, const std::function<bool()>& is_stop_requested = {});

  // Collective: forward and backward only; afterwards the engine holds the summed gradients. This rank's part of the
  // loss.
  double accumulate(const data::LocalStep& step);

 private:
  double run_micro_batch(const data::LocalMicroBatch& batch);

  const model::SentenceModel& model_;
  shard::ShardEngine& engine_;
  optim::Optimizer& optimizer_;
  Mesh& mesh_;
  StepOptions options_;
};

}  // namespace stft::train
