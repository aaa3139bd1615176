// The adapter of a run: attached to its model, its rows, what is told about it.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/adapter_files.h"
#include "checkpoint/pretrained.h"
#include "model/sentence_model.h"
#include "peft/lora.h"
#include "recipe/recipe.h"
#include "shard/shard_engine.h"

namespace stft::train {

struct RunAdapter {
  std::unique_ptr<checkpoint::AdapterFiles> files;  // null: it starts anew
  peft::Adapter adapter;
};

// The recipe with what adapter.path's own configuration says, which counts; only the dropout and the dtype are the
// recipe's, where it gives them. Unchanged without adapter.path. UserError for a key of the recipe that says otherwise.
recipe::Recipe with_stored_adapter(recipe::Recipe recipe);

// Attaches what the recipe asks for, or, for an evaluation of an adapter's directory, what that holds; null when the
// model has none. UserError for targets that the model has not and for files that do not fit it.
std::unique_ptr<RunAdapter> attach_adapter(const recipe::Recipe& recipe, model::SentenceModel& model,
                                           const checkpoint::PretrainedWeights& weights);

// The adapter in `directory` on a model for inference.
std::unique_ptr<RunAdapter> attach_adapter_of(const std::string& directory, model::SentenceModel& model,
                                              const checkpoint::PretrainedWeights& weights);

// What the model begins with: `base` has what comes from the model's files. Borrows model and adapter, which may be
// null.
shard::RowSource initial_rows(const model::SentenceModel& model, shard::RowSource base, const RunAdapter* adapter,
                              uint64_t seed);

// "LoRA r 8 on 12 modules: ...; 24,576 of 22,713,216 parameters are trained (0.11 %)".
std::string describe(const RunAdapter& adapter, const model::SentenceModel& model);

}  // namespace stft::train
