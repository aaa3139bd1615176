// The evaluation loss: the recipe's loss on data sets that are not trained on.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "data/batch_maker.h"
#include "data/data_config.h"
#include "data/dataset.h"
#include "eval/evaluator.h"
#include "loss/loss_config.h"
#include "tokenizer/tokenizer.h"

namespace stft::train {

struct LossEvaluatorOptions {
  loss::LossConfig loss;
  int64_t block_rows = 8;
};

// Every set in file order, cut in blocks; a block is one loss computation on one rank, and nothing of it is gathered
// but the loss, so the values are the same at any number of ranks. The loss of a set is the mean of its blocks'
// weighted by their rows. Metrics: eval_loss over the rows of all sets, eval_<set>_loss.
class LossEvaluator : public eval::Evaluator {
 public:
  // Reads the sets. Borrows the tokenizer. Errors of data::Dataset.
  LossEvaluator(const std::vector<data::DatasetConfig>& sets, const model::SentenceModel& model,
                const tokenizer::Tokenizer& tokenizer, LossEvaluatorOptions options);

  const std::string& name() const override { return name_; }
  eval::DataNotes notes() const override;
  std::optional<eval::EvaluationResult> evaluate(const eval::Embedder& embedder, dist::ProcessGroup& world,
                                                 eval::CorpusCache& cache, eval::Interrupt& interrupt) const override;

 private:
  struct Set {
    Set(data::Dataset rows, const tokenizer::Tokenizer& tokenizer, data::BatchOptions options);

    data::Dataset dataset;
    data::BatchMaker maker;  // borrows the data set
  };
  struct Block {
    size_t set = 0;
    int64_t first = 0;
    int64_t rows = 0;
  };
  double block_loss(const Block& block, const eval::Embedder& embedder) const;
  eval::EvaluationResult combine(std::span<const double> block_losses) const;

  std::string name_ = "loss";
  LossEvaluatorOptions options_;
  std::deque<Set> sets_;       // none is ever moved
  std::vector<Block> blocks_;  // of all sets, in order
};

}  // namespace stft::train
