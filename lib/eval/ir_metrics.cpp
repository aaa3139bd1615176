#include "eval/ir_metrics.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <unordered_map>

#include "base/error.h"

namespace stft::eval {
namespace {

constexpr std::array<std::size_t, 4> kCuts{1, 3, 5, 10};
constexpr std::size_t kNdcgCut = 10;
constexpr std::size_t kMrrCut = 10;
constexpr std::size_t kMapCut = 100;

// Discounted sum of the first gains; the first place has discount log2(2) = 1.
double discounted_sum(std::span<const double> gains) {
  double sum = 0.0;
  for (std::size_t i = 0; i < std::min(gains.size(), kNdcgCut); ++i) {
    sum += gains[i] / std::log2(static_cast<double>(i) + 2.0);
  }
  return sum;
}

// The gain of each ranked document; 0 when it is not relevant.
std::vector<double> gains_of(const RankedList& ranked, std::span<const RelevantDocument> relevant, Gain gain) {
  std::unordered_map<std::int64_t, double> worth;
  for (const RelevantDocument& document : relevant) {
    if (document.corpus_index == kNotInCorpus) continue;
    worth.emplace(document.corpus_index, gain == Gain::kGraded ? document.relevance : 1.0);
  }
  std::vector<double> gains;
  const std::size_t depth = std::min(ranked.documents.size(), static_cast<std::size_t>(kRankingDepth));
  for (std::size_t i = 0; i < depth; ++i) {
    const auto found = worth.find(ranked.documents[i]);
    gains.push_back(found == worth.end() ? 0.0 : found->second);
  }
  return gains;
}

std::vector<double> ideal_gains(std::span<const RelevantDocument> relevant, Gain gain) {
  std::vector<double> gains;
  for (const RelevantDocument& document : relevant) gains.push_back(gain == Gain::kGraded ? document.relevance : 1.0);
  std::sort(gains.begin(), gains.end(), std::greater<>());
  return gains;
}

// hits[n]: relevant documents among the first n.
std::vector<std::size_t> cumulative_hits(std::span<const double> gains) {
  std::vector<std::size_t> hits{0};
  for (const double gain : gains) hits.push_back(hits.back() + (gain > 0.0 ? 1 : 0));
  return hits;
}

double percentile(std::span<const double> sorted, double fraction) {
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

// A number below `bound`. The standard's distributions differ between libraries, this does not; the bias is below
// bound / 2^32.
std::size_t draw_below(std::mt19937_64& engine, std::size_t bound) {
  const std::uint64_t bits = engine() >> 32;
  return static_cast<std::size_t>(bits * static_cast<std::uint64_t>(bound) >> 32);
}

}  // namespace

const std::array<std::string, kIrMetricCount>& ir_metric_names() {
  static const std::array<std::string, kIrMetricCount> names{
      "accuracy@1",  "accuracy@3",  "accuracy@5",   "accuracy@10", "precision@1",
      "precision@3", "precision@5", "precision@10", "recall@1",    "recall@3",
      "recall@5",    "recall@10",   "ndcg@10",      "mrr@10",      "map@100"};
  return names;
}

QueryMetrics query_metrics(const RankedList& ranked, std::span<const RelevantDocument> relevant, Gain gain) {
  STFT_CHECK(!relevant.empty(), "a query without relevant documents has no metrics");
  const std::vector<double> gains = gains_of(ranked, relevant, gain);
  const std::vector<std::size_t> hits = cumulative_hits(gains);
  const auto hits_within = [&](std::size_t k) { return static_cast<double>(hits[std::min(k, gains.size())]); };
  const auto relevant_count = static_cast<double>(relevant.size());
  QueryMetrics metrics{};
  for (std::size_t i = 0; i < kCuts.size(); ++i) {
    const double found = hits_within(kCuts[i]);
    metrics[i] = found > 0.0 ? 1.0 : 0.0;
    metrics[kCuts.size() + i] = found / static_cast<double>(kCuts[i]);
    metrics[2 * kCuts.size() + i] = found / relevant_count;
  }
  metrics[kNdcg10] = discounted_sum(gains) / discounted_sum(ideal_gains(relevant, gain));
  double precision_sum = 0.0;
  double reciprocal_rank = 0.0;
  for (std::size_t i = 0; i < std::min(gains.size(), kMapCut); ++i) {
    if (gains[i] <= 0.0) continue;
    const auto rank = static_cast<double>(i + 1);
    precision_sum += static_cast<double>(hits[i + 1]) / rank;
    if (hits[i] == 0 && i < kMrrCut) reciprocal_rank = 1.0 / rank;
  }
  metrics[kNdcg10 + 1] = reciprocal_rank;
  metrics[kNdcg10 + 2] = precision_sum / std::min(static_cast<double>(kMapCut), relevant_count);
  return metrics;
}

IrMetrics mean_metrics(std::span<const QueryMetrics> queries) {
  STFT_CHECK(!queries.empty(), "no queries");
  QueryMetrics sums{};
  IrMetrics result;
  for (const QueryMetrics& metrics : queries) {
    for (std::size_t i = 0; i < kIrMetricCount; ++i) sums[i] += metrics[i];
    result.ndcg_10.push_back(metrics[kNdcg10]);
  }
  for (std::size_t i = 0; i < kIrMetricCount; ++i) {
    result.values.emplace_back(ir_metric_names()[i], sums[i] / static_cast<double>(queries.size()));
  }
  return result;
}

IrMetrics ir_metrics(std::span<const RankedList> ranked, std::span<const std::vector<RelevantDocument>> relevant,
                     Gain gain) {
  STFT_CHECK(ranked.size() == relevant.size(), "one ranking a query");
  std::vector<QueryMetrics> queries;
  for (std::size_t i = 0; i < ranked.size(); ++i) queries.push_back(query_metrics(ranked[i], relevant[i], gain));
  return mean_metrics(queries);
}

Interval paired_bootstrap(std::span<const double> before, std::span<const double> after, std::uint64_t seed,
                          int resamples) {
  STFT_CHECK(before.size() == after.size() && !before.empty() && resamples > 0, "pairs of numbers to resample");
  std::vector<double> differences(before.size());
  double total = 0.0;
  for (std::size_t i = 0; i < before.size(); ++i) total += differences[i] = after[i] - before[i];
  const auto count = static_cast<double>(differences.size());
  std::mt19937_64 engine(seed);
  std::vector<double> means(static_cast<std::size_t>(resamples));
  for (double& mean : means) {
    double sum = 0.0;
    for (std::size_t i = 0; i < differences.size(); ++i) sum += differences[draw_below(engine, differences.size())];
    mean = sum / count;
  }
  std::sort(means.begin(), means.end());
  return {total / count, percentile(means, 0.025), percentile(means, 0.975)};
}

}  // namespace stft::eval
