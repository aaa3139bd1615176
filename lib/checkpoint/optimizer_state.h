// The optimizer's part of a checkpoint, under the names that torch.optim's state dict has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/sharded_writer.h"
#include "model/sentence_model.h"
#include "optim/optim_config.h"
#include "optim/optimizer.h"
#include "shard/shard_engine.h"

namespace stft::checkpoint {

// What an optimizer needs to know of a parameter.
optim::TensorFacts facts_of(const model::Parameter& parameter);

// The tensors of the engine that an optimizer updates, in the table's order: a frozen parameter is none of them; a
// missing gradient is zeros when `needs_gradients`, else undefined. `learning_rate`: of parameters without their own.
struct UpdateOptions {
  bool needs_gradients = true;
  double learning_rate = 0;
};
std::vector<optim::Update> updates_of(const std::vector<shard::LocalParameter>& parameters,
                                      const UpdateOptions& options);

// Which of a parameter's own rows this rank writes: of rows that several ranks hold each writes an even part.
RowRange rows_to_write(const shard::LocalParameter& local);

struct OptimizerSource {
  optim::Optimizer& optimizer;
  const optim::OptimConfig& config;
  double rate_factor = 1;  // the schedule's for the next step
};

// Adds "optimizer.state.<name>.exp_avg" and so on, ".step", and the parameter groups: with weight decay and without,
// for each learning rate.
void add_optimizer(ShardedWriter& writer, const OptimizerSource& source, shard::ShardEngine& engine);

// Fills the optimizer's state for this rank's rows from `directory` (optimizer_0). A parameter without state there gets
// zeros, as one that never had a gradient. UserError when a tensor has another shape or type, or a part is missing.
void load_optimizer(const std::string& directory, optim::Optimizer& optimizer, shard::ShardEngine& engine);

}  // namespace stft::checkpoint
