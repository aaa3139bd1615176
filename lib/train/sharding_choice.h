// What a run decides about sharding where its recipe leaves it open.
#pragma once

#include <cstdint>

#include "dist/process_group.h"
#include "model/sentence_model.h"
#include "recipe/recipe.h"
#include "shard/shard_config.h"
#include "shard/shard_engine.h"

namespace stft::train {

// Bytes of memory that a process on this machine may use: of the machine, or of its control group (cgroup v2) when that
// allows less. All of it, not what is free now, so that a run decides alike each time.
int64_t machine_memory();

// Collective: a rank's even share of the machine's memory, the smallest among the ranks (which are on one machine).
int64_t memory_per_rank(dist::ProcessGroup& world);

struct ModelToShard {
  const model::ParameterTable& parameters;
  const shard::PackedForms* packed = nullptr;  // null: nothing is
};

// The recipe's sharding with strategy auto replaced by what fits `memory` bytes a rank (shard::choose_strategy), and
// param_dtype by what train.bf16 says.
shard::ShardConfig sharding_of(const recipe::Recipe& recipe, const ModelToShard& model, int64_t ranks, int64_t memory);

// What parameters are computed with: sharding.param_dtype, or what train.bf16 says.
shard::ParamDtype compute_dtype(const recipe::Recipe& recipe);

// Whether the gradients of a step's micro-batches are kept whole and reduced once: always where every rank has all
// parameters anyway; else when they fit in half of `memory` with all that the rank keeps.
bool keeps_whole_gradients(const recipe::Recipe& recipe, const shard::ShardEngine& engine,
                           const shard::ShardConfig& sharding, int64_t memory);

// What the optimizer keeps of `rows` rows of a parameter, in bytes; nothing of a frozen one.
int64_t optimizer_bytes(const optim::OptimConfig& config, const model::Parameter& parameter, int64_t rows);

}  // namespace stft::train
