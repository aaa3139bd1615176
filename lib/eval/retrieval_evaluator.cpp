#include "eval/retrieval_evaluator.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <cctype>

#include "base/clock.h"
#include "base/error.h"
#include "eval/prompts.h"
#include "eval/text_blocks.h"
#include "eval/top_documents.h"

// Shape suffixes: Q queries, N documents of a block, D embedding width, K kept documents.

namespace stft::eval {
namespace {

constexpr int64_t kDepth = kRankingDepth;

// The peer's column order within one similarity: precision and recall in turn, then mrr, ndcg, map.
constexpr std::array<size_t, kIrMetricCount> kCsvOrder = {0, 1, 2, 3, 4, 8, 5, 9, 6, 10, 7, 11, 13, 12, 14};

// Positions among ir_metric_names() of what a person looks at first.
constexpr std::array<size_t, 5> kShown = {kNdcg10, 0, 11, 13, 14};

// "accuracy@1" -> "Accuracy@1", "ndcg@10" -> "NDCG@10": as the peer's columns.
std::string csv_name(std::string metric) {
  const bool is_acronym = metric.starts_with("ndcg") || metric.starts_with("mrr") || metric.starts_with("map");
  for (char& c : metric) {
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (!is_acronym) {
      break;
    }
  }
  return metric;
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

// Scores [Q, N] of vectors that went through prepare(). Distances are computed from differences, without the shortcut
// through dot products, which loses close neighbours.
at::Tensor score(const at::Tensor& queries_QD, const at::Tensor& documents_ND, model::Similarity similarity) {
  constexpr int64_t kFromDifferences = 2;
  switch (similarity) {
    case model::Similarity::kCosine:
    case model::Similarity::kDot:
      return at::mm(queries_QD, documents_ND.t()).contiguous();
    case model::Similarity::kEuclidean:
      return -at::cdist(queries_QD, documents_ND, 2, kFromDifferences);
    case model::Similarity::kManhattan:
      return -at::cdist(queries_QD, documents_ND, 1, kFromDifferences);
  }
  throw_internal("known similarity", "");
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

RetrievalEvaluator::RetrievalEvaluator(const EvaluatorConfig& config, const EvaluatorDefaults& defaults)
    : config_(config),
      batch_size_(config.batch_size.value_or(defaults.batch_size)),
      similarities_(config.similarity_fn_names),
      data_(load_retrieval_data(config)) {
  if (similarities_.empty()) {
    similarities_.push_back(defaults.similarity);
  }
}

void RetrievalEvaluator::announce(CorpusCache& cache) const {
  cache.announce(corpus_key());
}

DataNotes RetrievalEvaluator::notes() const {
  DataNotes notes;
  if (data_.unknown_query_rows + data_.unknown_document_rows > 0) {
    notes.warnings.push_back(fmt::format("evaluator '{}': {} judgements name unknown queries, {} unknown documents",
                                         name(), data_.unknown_query_rows, data_.unknown_document_rows));
  }
  if (data_.dropped_queries > 0) {
    notes.infos.push_back(fmt::format("evaluator '{}': {} queries without a relevant document are left out", name(),
                                      data_.dropped_queries));
  }
  return notes;
}

std::optional<at::Tensor> RetrievalEvaluator::embed_queries(const Embedder& embedder, dist::ProcessGroup& world,
                                                            Interrupt& interrupt) const {
  const TextBlocks blocks(data_.queries, batch_size_);
  const data::Prompt prompt = embedder.measured(query_prompt(embedder.model().spec(), config_.query_prompt));
  const auto queries = static_cast<int64_t>(data_.queries.size());
  auto vectors_QD = at::zeros({queries, embedder.model().spec().embedding_dim()}, at::kFloat);
  for (int64_t block = world.rank(); block < blocks.count() && !interrupt.requested(); block += world.size()) {
    const auto vectors = embedder.embed(blocks.texts(block), prompt);
    const auto indices = blocks.indices(block);
    for (size_t i = 0; i < indices.size(); ++i) {
      vectors_QD[indices[i]].copy_(vectors[static_cast<int64_t>(i)]);
    }
  }
  if (interrupt.agree(world)) {
    return std::nullopt;
  }
  world.all_reduce_sum(vectors_QD).wait();  // every row has one rank's values and the others' zeros
  return vectors_QD;
}

std::string RetrievalEvaluator::corpus_key() const {
  const TextFileConfig& corpus = config_.corpus;
  const PromptConfig& prompt = config_.corpus_prompt;
  const std::string chosen = prompt.text ? "text " + *prompt.text : prompt.name ? "name " + *prompt.name : "own";
  return fmt::format("{}\n{}\n{}\n{}\n{}", corpus.path, corpus.id_field, corpus.text_field, batch_size_, chosen);
}

std::vector<TopDocuments> RetrievalEvaluator::keep_documents(const Embedder& embedder, const dist::ProcessGroup& world,
                                                             CorpusCache& cache, const at::Tensor& queries_QD,
                                                             Interrupt& interrupt) const {
  const TextBlocks blocks(data_.corpus, batch_size_);
  const data::Prompt prompt = embedder.measured(document_prompt(embedder.model().spec(), config_.corpus_prompt));
  const std::string key = corpus_key();
  std::vector<at::Tensor> prepared_queries;
  for (const model::Similarity similarity : similarities_) {
    prepared_queries.push_back(prepare(queries_QD, similarity, config_.truncate_dim));
  }
  std::vector<TopDocuments> kept(similarities_.size(), TopDocuments(queries_QD.size(0), kDepth, data_.id_order));
  for (int64_t block = world.rank(); block < blocks.count() && !interrupt.requested(); block += world.size()) {
    const auto vectors_ND = cache.block(key, block, [&] { return embedder.embed(blocks.texts(block), prompt); });
    for (size_t s = 0; s < similarities_.size(); ++s) {
      const auto documents_ND = prepare(vectors_ND, similarities_[s], config_.truncate_dim);
      offer_block(kept[s], score(prepared_queries[s], documents_ND, similarities_[s]), blocks.indices(block));
    }
  }
  return kept;
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

CsvRow RetrievalEvaluator::csv_row(const std::vector<IrMetrics>& by_similarity) const {
  CsvRow row;
  row.file = "Information-Retrieval_evaluation" + (config_.name.empty() ? "" : "_" + config_.name) + "_results.csv";
  for (size_t s = 0; s < similarities_.size(); ++s) {
    for (const size_t place : kCsvOrder) {
      const auto& [metric, value] = by_similarity[s].values[place];
      row.cells.emplace_back(model::similarity_name(similarities_[s]) + std::string("-") + csv_name(metric), value);
    }
  }
  return row;
}

std::optional<EvaluationResult> RetrievalEvaluator::evaluate(const Embedder& embedder, dist::ProcessGroup& world,
                                                             CorpusCache& cache, Interrupt& interrupt) const {
  const at::NoGradGuard no_grad;
  const double start = monotonic_seconds();
  const auto queries_QD = embed_queries(embedder, world, interrupt);
  if (!queries_QD) {
    return std::nullopt;
  }
  const auto kept = keep_documents(embedder, world, cache, *queries_QD, interrupt);
  if (interrupt.agree(world)) {
    return std::nullopt;
  }
  EvaluationResult result;
  result.name = config_.name;
  result.rows = queries_QD->size(0);
  std::vector<IrMetrics> by_similarity;
  double best = -1;
  for (size_t s = 0; s < similarities_.size(); ++s) {
    const auto ranked = merge(kept[s], result.rows, data_.id_order, world);
    by_similarity.push_back(ir_metrics(ranked, data_.relevant, config_.graded ? Gain::kGraded : Gain::kBinary));
    const IrMetrics& metrics = by_similarity.back();
    const std::string prefix =
        (config_.name.empty() ? "" : config_.name + "_") + model::similarity_name(similarities_[s]) + "_";
    for (const auto& [name, value] : metrics.values) {
      result.values.emplace_back(prefix + name, value);
    }
    if (metrics.values[kNdcg10].second > best) {
      best = metrics.values[kNdcg10].second;
      result.primary = prefix + ir_metric_names()[kNdcg10];
      result.per_query = metrics.ndcg_10;
      result.shown.clear();
      for (const size_t place : kShown) {
        result.shown.push_back(metrics.values[place]);
      }
    }
  }
  if (config_.write_csv) {
    result.csv = csv_row(by_similarity);
  }
  result.seconds = monotonic_seconds() - start;
  return result;
}

}  // namespace stft::eval
