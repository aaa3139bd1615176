#include "train/evaluation.h"

#include <utility>

#include "eval/corpus_cache.h"
#include "eval/embedder.h"

namespace stft::train {

EvaluationParts evaluation_parts(Run& run) {
  return {*run.model,  *run.tokenizer,    run.evaluators,
          *run.engine, run.mesh->world(), layout_of(run.recipe.train.packing)};
}

bool EvaluationRunner::has_work() const {
  return !parts_.evaluators.empty();
}

std::optional<Evaluation> EvaluationRunner::run(const std::function<bool()>& stop_requested) {
  const shard::ShardEngine::KeepUnsharded keep(parts_.engine);
  const eval::Embedder embedder(parts_.model, parts_.tokenizer, parts_.layout);
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
