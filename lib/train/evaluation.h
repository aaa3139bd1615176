// All evaluators of a run on one state of the model. Writes nothing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "dist/process_group.h"
#include "eval/evaluator.h"
#include "model/sentence_model.h"
#include "shard/shard_engine.h"
#include "tokenizer/tokenizer.h"
#include "train/run.h"
#include "train/run_log.h"

namespace stft::train {

// Equal on all ranks.
struct Evaluation {
  std::vector<eval::EvaluationResult> results;  // one an evaluator
  Metrics metrics;                              // all of them, under the log's names (without eval_)
  double seconds = 0;
};

// What an evaluation works with.
struct EvaluationParts {
  const model::SentenceModel& model;
  const tokenizer::Tokenizer& tokenizer;
  const std::vector<std::unique_ptr<eval::Evaluator>>& evaluators;
  shard::ShardEngine& engine;
  dist::ProcessGroup& world;
  model::Layout layout;
};
EvaluationParts evaluation_parts(Run& run);

// Borrows its parts.
class EvaluationRunner {
 public:
  explicit EvaluationRunner(const EvaluationParts& parts) : parts_(parts) {}

  bool has_work() const;

  // Collective: evaluates with gathered parameters, without gradient or dropout. `stop_requested` (may be empty) tells
  // whether this rank was asked to stop and is looked at between blocks; when it is true on any rank, no rank finds
  // anything.
  std::optional<Evaluation> run(const std::function<bool()>& stop_requested);

 private:
  EvaluationParts parts_;
};

}  // namespace stft::train
