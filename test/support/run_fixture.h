// Runs put together without YAML, on ranks that are threads.
#pragma once

#include <memory>
#include <string>

#include "recipe/recipe.h"
#include "support/golden.h"
#include "support/thread_ranks.h"
#include "train/mesh.h"
#include "train/run.h"
#include "train/step.h"

namespace stft::test {

// tiny_bert on committed pairs: SGD, constant rate, no clipping, file order.
inline recipe::Recipe tiny_recipe() {
  recipe::Recipe recipe;
  recipe.model.name_or_path = golden_path("tiny_bert");
  data::DatasetConfig data;
  data.name = "pairs";
  data.paths = {golden_path("data/pairs.jsonl")};
  data.columns.anchor = "anchor";
  data.columns.positive = "positive";
  recipe.data.train = {data};
  recipe.loss.type = loss::LossType::kMultipleNegativesRanking;
  recipe.sharding.wrap = shard::WrapKind::kBlock;  // auto would make one group of so small a model
  recipe.train.max_steps = 3;
  recipe.train.shuffle = false;
  recipe.optim.optim = optim::OptimizerType::kSgd;
  recipe.optim.learning_rate = 0.1;
  recipe.optim.lr_scheduler_type = optim::ScheduleType::kConstant;
  recipe.optim.max_grad_norm = 0;
  return recipe;
}

inline void use_triplets(recipe::Recipe& recipe, int negatives, int64_t rows) {
  auto& data = recipe.data.train.front();
  data.paths = {golden_path("data/triplets.jsonl")};
  data.limit = rows;
  for (int i = 1; i <= negatives; ++i) {
    data.columns.numbered_negatives.push_back("negative_" + std::to_string(i));
  }
}

// CoSENTLoss on committed pairs with a score, quoted as csv has it.
inline void use_scored(recipe::Recipe& recipe) {
  recipe.loss.type = loss::LossType::kCoSent;
  auto& data = recipe.data.train.front();
  data.name = "scored";
  data.paths = {golden_path("data/scored.csv")};
  data.columns = {};
  data.columns.text_1 = "definition";
  data.columns.text_2 = "lemmas";
  data.columns.score = "score";
}

inline std::unique_ptr<train::Run> assemble_on(std::unique_ptr<dist::ProcessGroup> world, recipe::Recipe recipe,
                                               shard::Strategy strategy) {
  recipe.sharding.strategy = strategy;
  recipe = recipe::resolve(std::move(recipe), world->size());
  return std::make_unique<train::Run>(train::assemble(std::move(recipe), std::move(world)));
}

inline train::StepRunner runner_of(train::Run& run, bool reduces_every_micro_batch = true) {
  train::StepOptions options;
  options.seed = run.recipe.run.seed;
  options.loss = run.recipe.loss;
  options.learning_rate = run.recipe.optim.learning_rate;
  options.max_grad_norm = run.recipe.optim.max_grad_norm;
  options.recomputes = run.recipe.train.gradient_checkpointing;
  options.reduces_every_micro_batch = reduces_every_micro_batch;
  return {*run.model, *run.engine, *run.optimizer, *run.mesh, options};
}

}  // namespace stft::test
