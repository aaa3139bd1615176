// Everything a run owns, in the order in which it comes to life.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/base_identity.h"
#include "checkpoint/pretrained.h"
#include "checkpoint/quantized_base.h"
#include "checkpoint/stored_model.h"
#include "data/batch_loader.h"
#include "data/dataset.h"
#include "data/step_plan.h"
#include "eval/evaluator.h"
#include "model/sentence_model.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "recipe/recipe.h"
#include "shard/shard_engine.h"
#include "tokenizer/tokenizer.h"
#include "train/adapter.h"
#include "train/mesh.h"
#include "train/resume.h"

namespace stft::train {

// Built once by assemble(); members borrow from those above them and are destroyed in reverse order.
struct Run {
  recipe::Recipe recipe;
  std::optional<ResumePoint> resumed;
  std::unique_ptr<Mesh> mesh;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::unique_ptr<data::Dataset> dataset;
  std::string data_fingerprint;  // of the data set
  std::unique_ptr<data::StepPlan> plan;
  std::unique_ptr<model::SentenceModel> model;
  std::vector<std::unique_ptr<eval::Evaluator>> evaluators;
  std::unique_ptr<checkpoint::PretrainedWeights> weights;
  std::unique_ptr<RunAdapter> adapter;                   // null: all of the model is trained
  std::optional<checkpoint::BaseIdentity> base;          // of what the adapter is trained on
  std::unique_ptr<checkpoint::QuantizedBase> quantized;  // null: the model is not quantized
  std::unique_ptr<shard::PackedForms> packed;            // what of it the engine keeps
  shard::ShardConfig sharding;                           // the recipe's, with what it leaves open
  std::unique_ptr<shard::ShardEngine> engine;
  bool reduces_every_micro_batch = true;  // else once a step, with whole gradients kept in between
  uint64_t parameters_checksum = 0;       // before the first step
  uint64_t quantized_base_hash = 0;       // of the packed bytes, for the whole run; 0: nothing is packed
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::Schedule> schedule;
  std::unique_ptr<data::BatchLoader> loader;
};

// Collective: from a resolved recipe and the ranks to a run that is ready for its first step; weights are filled, each
// rank reading its own rows: from the model, or from the checkpoint with the optimizer's state. UserError for what the
// recipe's files turn out to be (among them: no step to train), for a checkpoint that does not fit them, and for ranks
// that read different ones (agree_on_facts).
Run assemble(recipe::Recipe recipe, std::unique_ptr<dist::ProcessGroup> world,
             std::optional<ResumePoint> resumed = std::nullopt);

// Null when all of the model is trained.
const peft::Adapter* adapter_of(const Run& run);

// What StoredModel::open wants of a checkpoint of this run: an adapter's base, empty for a whole model.
std::string base_of_checkpoints(const Run& run);

// What is trained from the checkpoint, what is frozen from the model. Borrows both.
shard::RowSource rows_of_checkpoint(const Run& run, const checkpoint::StoredModel& stored);

// How texts lie in a forward pass.
model::Layout layout_of(recipe::Packing packing);

// Collective: the part of a run that evaluates: tokenizer, model with its weights, evaluators, engine.
Run assemble_evaluation(recipe::Recipe recipe, std::unique_ptr<dist::ProcessGroup> world);

// Validates everything that the recipe's files hold, as assemble() would, without ranks and without reading weights.
void check_inputs(const recipe::Recipe& recipe, int64_t ranks);

// The part of it that needs no file of the model: the training data and the number of steps.
void check_inputs_without_model(const recipe::Recipe& recipe, int64_t ranks);

// What a run does with an output_dir that holds a run.
enum class OutputDirUse {
  kNew,  // refuses it
  kReplaces,
  kGoesOn  // from its newest complete checkpoint, or from another run's
};

// Before anything is written: UserError when output_dir cannot be a directory, holds a run that `use` refuses, or holds
// a run whose removal would take an input of this recipe with it.
void check_output_dir(const recipe::Recipe& recipe, OutputDirUse use);

// Removes the files of a run from `output_dir`; other files stay. Called when the new run is known to start.
void clear_output_dir(const std::string& output_dir);

}  // namespace stft::train
