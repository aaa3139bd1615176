// InformationRetrievalEvaluator, run by all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dist/process_group.h"
#include "eval/corpus_cache.h"
#include "eval/embedder.h"
#include "eval/eval_config.h"
#include "eval/evaluator.h"
#include "eval/ir_metrics.h"
#include "eval/retrieval_data.h"
#include "eval/top_documents.h"

namespace stft::eval {

// Texts are cut into blocks of batch_size by length (then position), and the blocks are dealt to the ranks in turn, so
// every vector and every score comes from the same computation at any number of ranks. Documents are scored block by
// block; a rank keeps its best documents for each query and all ranks merge theirs. Ties: score descending, then id in
// bytes order.
class RetrievalEvaluator : public Evaluator {
 public:
  // Errors of load_retrieval_data.
  RetrievalEvaluator(const EvaluatorConfig& config, const EvaluatorDefaults& defaults);

  const std::string& name() const override { return config_.name; }
  void announce(CorpusCache& cache) const override;
  DataNotes notes() const override;
  std::optional<EvaluationResult> evaluate(const Embedder& embedder, dist::ProcessGroup& world, CorpusCache& cache,
                                           Interrupt& interrupt) const override;

  // Equal for evaluators that embed the same documents in the same blocks.
  std::string corpus_key() const;

  const RetrievalData& data() const { return data_; }

 private:
  // Nothing when the evaluation was given up.
  std::optional<at::Tensor> embed_queries(const Embedder& embedder, dist::ProcessGroup& world,
                                          Interrupt& interrupt) const;
  // The best of this rank's documents, one set a similarity; every block of documents is embedded once.
  std::vector<TopDocuments> keep_documents(const Embedder& embedder, const dist::ProcessGroup& world,
                                           CorpusCache& cache, const at::Tensor& queries_QD,
                                           Interrupt& interrupt) const;
  void offer_block(TopDocuments& kept, const at::Tensor& scores_QN, std::span<const int64_t> documents) const;

  CsvRow csv_row(const std::vector<IrMetrics>& by_similarity) const;

  EvaluatorConfig config_;
  int64_t batch_size_;
  std::vector<model::Similarity> similarities_;
  RetrievalData data_;
};

}  // namespace stft::eval
