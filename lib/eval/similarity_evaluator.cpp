#include "eval/similarity_evaluator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/clock.h"
#include "base/error.h"
#include "eval/correlation.h"
#include "eval/prompts.h"
#include "eval/text_blocks.h"

// Shape suffixes: S sentences, N pairs of a chunk, D embedding width.

namespace stft::eval {
namespace {

constexpr int64_t kPairsPerChunk = 4096;

at::Tensor unit(const at::Tensor& vectors_ND) {
  return vectors_ND / vectors_ND.norm(2, {1}, true).clamp_min(1e-12);
}

// The largest; NaN loses against any number.
double best_of(const std::vector<double>& values) {
  double best = std::numeric_limits<double>::quiet_NaN();
  for (const double value : values) {
    best = std::isnan(best) || value > best ? value : best;
  }
  return best;
}

// The vectors of all texts on every rank, or nothing when the evaluation was given up. Collective.
std::optional<at::Tensor> embed_all(const std::vector<std::string>& texts, int64_t batch_size, const Embedder& embedder,
                                    dist::ProcessGroup& world, Interrupt& interrupt) {
  const TextBlocks blocks(texts, batch_size);
  const data::Prompt prompt = embedder.measured(encoding_prompt(embedder.model().spec(), {}));
  auto vectors_SD =
      at::zeros({static_cast<int64_t>(texts.size()), embedder.model().spec().embedding_dim()}, at::kFloat);
  for (int64_t block = world.rank(); block < blocks.count() && !interrupt.requested(); block += world.size()) {
    const auto vectors = embedder.embed(blocks.texts(block), prompt);
    const auto indices = blocks.indices(block);
    for (size_t i = 0; i < indices.size(); ++i) {
      vectors_SD[indices[i]].copy_(vectors[static_cast<int64_t>(i)]);
    }
  }
  if (interrupt.agree(world)) {
    return std::nullopt;
  }
  world.all_reduce_sum(vectors_SD).wait();  // every row has one rank's values and the others' zeros
  return vectors_SD;
}

at::Tensor rows(const at::Tensor& vectors_SD, const std::vector<int64_t>& positions, int64_t begin, int64_t count) {
  auto index = at::empty({count}, at::kLong);
  std::copy_n(positions.begin() + begin, count, index.data_ptr<int64_t>());
  return vectors_SD.index_select(0, index);
}

}  // namespace

at::Tensor pairwise_similarity(const at::Tensor& a_ND, const at::Tensor& b_ND, model::Similarity similarity) {
  switch (similarity) {
    case model::Similarity::kCosine:
      return (unit(a_ND) * unit(b_ND)).sum(1);
    case model::Similarity::kDot:
      return (a_ND * b_ND).sum(1);
    case model::Similarity::kEuclidean:
      return -(a_ND - b_ND).square().sum(1).sqrt();
    case model::Similarity::kManhattan:
      return -(a_ND - b_ND).abs().sum(1);
  }
  throw_internal("known similarity", "");
}

SimilarityEvaluator::SimilarityEvaluator(const EvaluatorConfig& config, const EvaluatorDefaults& defaults)
    : config_(config),
      batch_size_(config.batch_size.value_or(defaults.batch_size)),
      similarities_(config.similarity_fn_names),
      pairs_(load_scored_pairs(config.pairs)) {
  if (similarities_.empty()) {
    similarities_.push_back(defaults.similarity);
  }
}

std::vector<double> SimilarityEvaluator::scores(const at::Tensor& vectors_SD, model::Similarity similarity) const {
  const auto pairs = static_cast<int64_t>(pairs_.scores.size());
  std::vector<double> result;
  for (int64_t begin = 0; begin < pairs; begin += kPairsPerChunk) {
    const int64_t count = std::min(kPairsPerChunk, pairs - begin);
    const auto chunk = pairwise_similarity(rows(vectors_SD, pairs_.first, begin, count),
                                           rows(vectors_SD, pairs_.second, begin, count), similarity)
                           .contiguous();
    result.insert(result.end(), chunk.const_data_ptr<float>(), chunk.const_data_ptr<float>() + count);
  }
  return result;
}

EvaluationResult SimilarityEvaluator::correlate(const at::Tensor& vectors_SD) const {
  const std::string prefix = config_.name.empty() ? "" : config_.name + "_";
  EvaluationResult result;
  result.name = config_.name;
  result.rows = static_cast<int64_t>(pairs_.scores.size());
  CsvRow row{"similarity_evaluation" + (config_.name.empty() ? "" : "_" + config_.name) + "_results.csv", {}};
  std::vector<double> pearsons, spearmans;
  for (const model::Similarity similarity : similarities_) {
    const auto found = scores(vectors_SD, similarity);
    const std::string label = model::similarity_name(similarity);
    pearsons.push_back(pearson(pairs_.scores, found));
    spearmans.push_back(spearman(pairs_.scores, found));
    result.values.emplace_back(prefix + "pearson_" + label, pearsons.back());
    result.values.emplace_back(prefix + "spearman_" + label, spearmans.back());
    row.cells.emplace_back(label + "_pearson", pearsons.back());
    row.cells.emplace_back(label + "_spearman", spearmans.back());
    if (std::isnan(spearmans.back())) {
      result.warnings.push_back("evaluator '" + config_.name + "', " + label +
                                ": no correlation, since the scores or the similarities are all equal or NaN");
    }
  }
  result.primary = prefix + "spearman_" + model::similarity_name(similarities_.front());
  if (similarities_.size() > 1) {
    result.values.emplace_back(prefix + "pearson_max", best_of(pearsons));
    result.values.emplace_back(prefix + "spearman_max", best_of(spearmans));
    result.primary = prefix + "spearman_max";
  }
  result.shown = {{"pearson", best_of(pearsons)}, {"spearman", best_of(spearmans)}};
  if (config_.write_csv) {
    result.csv = std::move(row);
  }
  return result;
}

std::optional<EvaluationResult> SimilarityEvaluator::evaluate(const Embedder& embedder, dist::ProcessGroup& world,
                                                              CorpusCache&, Interrupt& interrupt) const {
  const at::NoGradGuard no_grad;
  const double start = monotonic_seconds();
  const auto vectors_SD = embed_all(pairs_.texts, batch_size_, embedder, world, interrupt);
  if (!vectors_SD) {
    return std::nullopt;
  }
  EvaluationResult result = correlate(*vectors_SD);
  result.seconds = monotonic_seconds() - start;
  return result;
}

}  // namespace stft::eval
