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
  std::vector<eval::EvaluationResult> results;  // one an evaluator of the run
  Metrics metrics;                              // all of them, under the log's names (without eval_)
  double seconds = 0;
};

// The recipe's evaluators, in its order, then, where data.eval names sets, the one of the evaluation loss. Reads their
// files; borrows the tokenizer. UserError for what the files turn out to be.
std::vector<std::unique_ptr<eval::Evaluator>> make_evaluators(const recipe::Recipe& recipe,
                                                              const model::SentenceModel& model,
                                                              const tokenizer::Tokenizer& tokenizer);

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
