// InformationRetrievalEvaluator, run by all ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dist/process_group.h"
#include "eval/corpus_cache.h"
#include "eval/embedder.h"
#include "eval/eval_config.h"
#include "eval/ir_metrics.h"
#include "eval/retrieval_data.h"
#include "eval/top_documents.h"

namespace stft::eval {

// What an evaluator found. Equal on all ranks.
struct EvaluationResult {
  std::string name;                                    // the evaluator's
  std::vector<std::pair<std::string, double>> values;  // "{name}_{similarity}_ndcg@10" and so on
  std::string primary;                                 // the name among `values` that stands for the whole
  std::vector<double> per_query;                       // of the primary metric
  int64_t queries = 0;
  int64_t documents = 0;
  double seconds = 0;

  double primary_value() const;
};

// Texts are cut into blocks of batch_size by length (then position), and the blocks are dealt to the ranks in turn, so
// every vector and every score comes from the same computation at any number of ranks. Documents are scored block by
// block; a rank keeps its best documents for each query and all ranks merge theirs. Ties: score descending, then id in
// bytes order.
class RetrievalEvaluator {
 public:
  // `default_batch_size` and `default_similarity` hold where the configuration is silent. UserError for a similarity
  // that is not available; errors of load_retrieval_data.
  RetrievalEvaluator(const EvaluatorConfig& config, int64_t default_batch_size, model::Similarity default_similarity);

  // Collective over `world`. The model's parameters are filled on every rank. `cache` is that of this evaluation.
  EvaluationResult evaluate(const Embedder& embedder, dist::ProcessGroup& world, CorpusCache& cache) const;

  // Equal for evaluators that embed the same documents in the same blocks.
  std::string corpus_key() const;

  const std::string& name() const { return config_.name; }
  const RetrievalData& data() const { return data_; }

 private:
  at::Tensor embed_queries(const Embedder& embedder, dist::ProcessGroup& world) const;
  std::vector<std::vector<RankedList>> rank_documents(const Embedder& embedder, dist::ProcessGroup& world,
                                                      CorpusCache& cache, const at::Tensor& queries_QD) const;
  void offer_block(TopDocuments& kept, const at::Tensor& scores_QN, std::span<const int64_t> documents) const;

  EvaluatorConfig config_;
  int64_t batch_size_;
  std::vector<model::Similarity> similarities_;
  RetrievalData data_;
};

}  // namespace stft::eval
