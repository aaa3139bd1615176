#include "train/evaluation.h"

#include <utility>

#include "eval/corpus_cache.h"
#include "eval/embedder.h"
#include "train/loss_evaluator.h"

namespace stft::train {

std::vector<std::unique_ptr<eval::Evaluator>> make_evaluators(const recipe::Recipe& recipe,
                                                              const model::SentenceModel& model,
                                                              const tokenizer::Tokenizer& tokenizer) {
  std::vector<std::unique_ptr<eval::Evaluator>> evaluators;
  for (const eval::EvaluatorConfig& config : recipe.evaluators) {
    evaluators.push_back(
        eval::make_evaluator(config, {recipe.train.per_device_eval_batch_size, model.spec().similarity}));
  }
  if (!recipe.data.eval.empty()) {
    evaluators.push_back(
        std::make_unique<LossEvaluator>(recipe.data.eval, model, tokenizer,
                                        LossEvaluatorOptions{recipe.loss, recipe.train.per_device_eval_batch_size}));
  }
  return evaluators;
}

EvaluationParts evaluation_parts(Run& run) {
  return {*run.model,  *run.tokenizer,    run.evaluators,
          *run.engine, run.mesh->world(), layout_of(run.recipe.train.packing)};
}

bool EvaluationRunner::has_work() const {
  return !parts_.evaluators.empty();
}

std::optional<Evaluation> EvaluationRunner::run(const std::function<bool()>& stop_requested) {
  using Gather = shard::ShardEngine::KeepUnsharded::Gather;
  const bool has_packed = parts_.engine.has_packed();
  const shard::ShardEngine::KeepUnsharded keep(parts_.engine, has_packed ? Gather::kPacked : Gather::kNow);
  const eval::Embedder embedder(parts_.model, parts_.tokenizer, parts_.layout, has_packed ? &parts_.engine : nullptr);
  eval::Interrupt interrupt(stop_requested);
  eval::CorpusCache cache;
  for (const auto& evaluator : parts_.evaluators) {
    evaluator->announce(cache);
  }
  Evaluation evaluation;
  for (const auto& evaluator : parts_.evaluators) {
    auto result = evaluator->evaluate(embedder, parts_.world, cache, interrupt);
    if (!result) {
      return std::nullopt;
    }
    evaluation.metrics.insert(evaluation.metrics.end(), result->values.begin(), result->values.end());
    evaluation.seconds += result->seconds;
    evaluation.results.push_back(std::move(*result));
  }
  return evaluation;
}

}  // namespace stft::train
