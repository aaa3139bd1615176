#include "eval/retrieval_evaluator.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "eval/blocks.h"
#include "eval/top_documents.h"

// Shape suffixes: Q queries, N documents of a block, D embedding width, K kept documents.

namespace stft::eval {
namespace {

constexpr int64_t kDepth = kRankingDepth;

// Prompts by role as sentence-transformers' encode_query and encode_document choose them.
std::string prompt_for(const model::ModelSpec& spec, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto found = spec.prompts.find(name); found != spec.prompts.end()) {
      return found->second;
    }
  }
  if (spec.default_prompt_name) {
    if (const auto found = spec.prompts.find(*spec.default_prompt_name); found != spec.prompts.end()) {
      return found->second;
    }
  }
  return {};
}

at::Tensor prepare(at::Tensor vectors_ND, model::Similarity similarity, std::optional<int64_t> truncate_dim) {
  if (truncate_dim && *truncate_dim < vectors_ND.size(1)) {
    vectors_ND = vectors_ND.narrow(1, 0, *truncate_dim);
  }
  if (similarity == model::Similarity::kCosine) {
    vectors_ND = vectors_ND / vectors_ND.norm(2, {1}, true).clamp_min(1e-12);
  }
  return vectors_ND.contiguous();
}

// Every rank's kept documents, merged into one ranking a query.
std::vector<RankedList> merge(const TopDocuments& kept, int64_t queries, std::span<const int64_t> id_order,
                              dist::ProcessGroup& world) {
  auto scores_QK = at::zeros({queries, kDepth}, at::kFloat);
  auto documents_QK = at::full({queries, kDepth}, -1, at::kLong);
  for (int64_t q = 0; q < queries; ++q) {
    const auto of_query = kept.sorted(q);
    for (size_t i = 0; i < of_query.size(); ++i) {
      const auto at_index = q * kDepth + static_cast<int64_t>(i);
      scores_QK.data_ptr<float>()[at_index] = of_query[i].score;
      documents_QK.data_ptr<int64_t>()[at_index] = of_query[i].document;
    }
  }
  auto all_scores = at::empty({world.size(), queries, kDepth}, at::kFloat);
  auto all_documents = at::empty({world.size(), queries, kDepth}, at::kLong);
  world.all_gather(all_scores, scores_QK).wait();
  world.all_gather(all_documents, documents_QK).wait();

  TopDocuments merged(queries, kDepth, id_order);
  for (int64_t i = 0; i < all_documents.numel(); ++i) {
    const int64_t document = all_documents.data_ptr<int64_t>()[i];
    if (document >= 0) {
      merged.offer(i / kDepth % queries, {all_scores.data_ptr<float>()[i], document});
    }
  }
  std::vector<RankedList> result(static_cast<size_t>(queries));
  for (int64_t q = 0; q < queries; ++q) {
    for (const ScoredDocument& document : merged.sorted(q)) {
      result[static_cast<size_t>(q)].documents.push_back(document.document);
    }
  }
  return result;
}

}  // namespace

double EvaluationResult::primary_value() const {
  for (const auto& [name, value] : values) {
    if (name == primary) {
      return value;
    }
  }
  throw_internal("the primary metric is among the values", primary);
}

RetrievalEvaluator::RetrievalEvaluator(const EvaluatorConfig& config, int64_t default_batch_size,
                                       model::Similarity default_similarity)
    : config_(config),
      batch_size_(config.batch_size.value_or(default_batch_size)),
      similarities_(config.similarity_fn_names),
      data_(load_retrieval_data(config)) {
  if (similarities_.empty()) {
    similarities_.push_back(default_similarity);
  }
  for (const model::Similarity similarity : similarities_) {
    if (similarity != model::Similarity::kCosine && similarity != model::Similarity::kDot) {
      throw UserError("evaluator '" + config_.name + "': similarity " + model::similarity_name(similarity) +
                      " is not available yet (cosine and dot are; model.similarity_fn_name chooses one)");
    }
  }
}

at::Tensor RetrievalEvaluator::embed_queries(const Embedder& embedder, dist::ProcessGroup& world) const {
  const Blocks blocks(data_.queries, batch_size_);
  const std::string prompt = prompt_for(embedder.model().spec(), {"query"});
  const auto queries = static_cast<int64_t>(data_.queries.size());
  auto vectors_QD = at::zeros({queries, embedder.model().spec().embedding_dim()}, at::kFloat);
  for (int64_t block = world.rank(); block < blocks.count(); block += world.size()) {
    const auto vectors = embedder.embed(blocks.texts(block), prompt);
    const auto indices = blocks.indices(block);
    for (size_t i = 0; i < indices.size(); ++i) {
      vectors_QD[indices[i]].copy_(vectors[static_cast<int64_t>(i)]);
    }
  }
  world.all_reduce_sum(vectors_QD).wait();  // every row has one rank's values and the others' zeros
  return vectors_QD;
}

std::string RetrievalEvaluator::corpus_key() const {
  const TextFileConfig& corpus = config_.corpus;
  return corpus.path + '\n' + corpus.id_field + '\n' + corpus.text_field + '\n' + std::to_string(batch_size_);
}

// One ranking a query for each similarity; every block of documents is embedded once.
std::vector<std::vector<RankedList>> RetrievalEvaluator::rank_documents(const Embedder& embedder,
                                                                        dist::ProcessGroup& world, CorpusCache& cache,
                                                                        const at::Tensor& queries_QD) const {
  const Blocks blocks(data_.corpus, batch_size_);
  const std::string prompt = prompt_for(embedder.model().spec(), {"document", "passage", "corpus"});
  const std::string key = corpus_key();
  const int64_t queries = queries_QD.size(0);
  std::vector<at::Tensor> prepared_queries;
  for (const model::Similarity similarity : similarities_) {
    prepared_queries.push_back(prepare(queries_QD, similarity, config_.truncate_dim));
  }
  std::vector<TopDocuments> kept(similarities_.size(), TopDocuments(queries, kDepth, data_.id_order));
  for (int64_t block = world.rank(); block < blocks.count(); block += world.size()) {
    const auto vectors_ND = cache.block(key, block, [&] { return embedder.embed(blocks.texts(block), prompt); });
    for (size_t s = 0; s < similarities_.size(); ++s) {
      const auto documents_ND = prepare(vectors_ND, similarities_[s], config_.truncate_dim);
      offer_block(kept[s], at::mm(prepared_queries[s], documents_ND.t()).contiguous(), blocks.indices(block));
    }
  }
  std::vector<std::vector<RankedList>> result;
  for (const TopDocuments& of_similarity : kept) {
    result.push_back(merge(of_similarity, queries, data_.id_order, world));
  }
  return result;
}

void RetrievalEvaluator::offer_block(TopDocuments& kept, const at::Tensor& scores_QN,
                                     std::span<const int64_t> documents) const {
  for (int64_t q = 0; q < scores_QN.size(0); ++q) {
    const auto* scores = scores_QN.const_data_ptr<float>() + q * scores_QN.size(1);
    const int64_t excluded =
        config_.exclude_identical_ids ? data_.identical_document[static_cast<size_t>(q)] : kNotInCorpus;
    for (size_t i = 0; i < documents.size(); ++i) {
      if (documents[i] != excluded) {
        kept.offer(q, {scores[i], documents[i]});
      }
    }
  }
}

EvaluationResult RetrievalEvaluator::evaluate(const Embedder& embedder, dist::ProcessGroup& world,
                                              CorpusCache& cache) const {
  const at::NoGradGuard no_grad;
  const double start = monotonic_seconds();
  EvaluationResult result;
  result.name = config_.name;
  result.queries = static_cast<int64_t>(data_.queries.size());
  result.documents = static_cast<int64_t>(data_.corpus.size());
  const auto queries_QD = embed_queries(embedder, world);
  double best = -1;
  const auto ranked = rank_documents(embedder, world, cache, queries_QD);
  for (size_t s = 0; s < similarities_.size(); ++s) {
    const model::Similarity similarity = similarities_[s];
    const IrMetrics metrics = ir_metrics(ranked[s], data_.relevant, config_.graded ? Gain::kGraded : Gain::kBinary);
    const std::string prefix =
        (config_.name.empty() ? "" : config_.name + "_") + model::similarity_name(similarity) + "_";
    for (const auto& [name, value] : metrics.values) {
      result.values.emplace_back(prefix + name, value);
    }
    const double ndcg = metrics.values[kNdcg10].second;
    if (ndcg > best) {
      best = ndcg;
      result.primary = prefix + ir_metric_names()[kNdcg10];
      result.per_query = metrics.ndcg_10;
    }
  }
  result.seconds = monotonic_seconds() - start;
  return result;
}

}  // namespace stft::eval
