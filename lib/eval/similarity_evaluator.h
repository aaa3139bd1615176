// EmbeddingSimilarityEvaluator, run by all ranks.
#pragma once

#include <string>
#include <vector>

#include "eval/evaluator.h"
#include "eval/scored_pairs.h"

namespace stft::eval {

// Correlation of the similarity of two sentences with a given score. Every distinct sentence is embedded once, with the
// model's default prompt, in blocks that are dealt to the ranks in turn; the scores and correlations are then the same
// computation on all ranks. Euclidean and manhattan similarity are negative distances.
class SimilarityEvaluator : public Evaluator {
 public:
  // Errors of load_scored_pairs.
  SimilarityEvaluator(const EvaluatorConfig& config, const EvaluatorDefaults& defaults);

  const std::string& name() const override { return config_.name; }
  std::optional<EvaluationResult> evaluate(const Embedder& embedder, dist::ProcessGroup& world, CorpusCache& cache,
                                           Interrupt& interrupt) const override;

 private:
  std::vector<double> scores(const at::Tensor& vectors_SD, model::Similarity similarity) const;
  EvaluationResult correlate(const at::Tensor& vectors_SD) const;

  EvaluatorConfig config_;
  int64_t batch_size_;
  std::vector<model::Similarity> similarities_;
  ScoredPairs pairs_;
};

// Rowwise similarity of a and b [N, D], fp32: [N].
at::Tensor pairwise_similarity(const at::Tensor& a_ND, const at::Tensor& b_ND, model::Similarity similarity);

}  // namespace stft::eval
