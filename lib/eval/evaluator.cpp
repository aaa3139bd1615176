#include "eval/evaluator.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "eval/retrieval_evaluator.h"
#include "eval/similarity_evaluator.h"

namespace stft::eval {

double EvaluationResult::primary_value() const {
  for (const auto& [name, value] : values) {
    if (name == primary) {
      return value;
    }
  }
  throw_internal("the primary metric is among the values", primary);
}

bool Interrupt::requested() {
  seen_ = seen_ || (ask_ && ask_());
  return seen_;
}

bool Interrupt::agree(dist::ProcessGroup& world) {
  auto votes = at::zeros({1}, at::kFloat);
  votes.data_ptr<float>()[0] = requested() ? 1.0F : 0.0F;
  world.all_reduce_sum(votes).wait();
  seen_ = votes.data_ptr<float>()[0] > 0;
  return seen_;
}

void Evaluator::announce(CorpusCache&) const {}

DataNotes Evaluator::notes() const {
  return {};
}

std::unique_ptr<Evaluator> make_evaluator(const EvaluatorConfig& config, const EvaluatorDefaults& defaults) {
  switch (config.type) {
    case EvaluatorType::kInformationRetrieval:
      return std::make_unique<RetrievalEvaluator>(config, defaults);
    case EvaluatorType::kEmbeddingSimilarity:
      return std::make_unique<SimilarityEvaluator>(config, defaults);
  }
  throw_internal("known evaluator", config.name);
}

}  // namespace stft::eval
