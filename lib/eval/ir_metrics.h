// Metrics of ranked retrieval, as pure functions of rankings. Definitions and their order are those of
// sentence-transformers 6.2 InformationRetrievalEvaluator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eval/retrieval_data.h"

namespace stft::eval {

// Results that a ranking must hold (all documents when the corpus is smaller): the deepest cut of any metric.
inline constexpr std::int64_t kRankingDepth = 100;

// The best documents of one query: corpus indices, score descending, then id ascending. None twice.
struct RankedList {
  std::vector<std::int64_t> documents;
};

inline constexpr std::size_t kIrMetricCount = 15;

// Names without prefix: accuracy@1,3,5,10, precision@1,3,5,10, recall@1,3,5,10, ndcg@10, mrr@10, map@100.
const std::array<std::string, kIrMetricCount>& ir_metric_names();

// The metrics of one query, in the order of ir_metric_names(). A plain block of numbers, fit to be gathered.
using QueryMetrics = std::array<double, kIrMetricCount>;

// Position of ndcg@10.
inline constexpr std::size_t kNdcg10 = 12;

// How much a relevant document is worth in ndcg: 1, or its relevance (linear gain, as trec_eval).
enum class Gain { kBinary, kGraded };

// `relevant` is not empty; documents outside the corpus count as never found.
QueryMetrics query_metrics(const RankedList& ranked, std::span<const RelevantDocument> relevant, Gain gain);

struct IrMetrics {
  std::vector<std::pair<std::string, double>> values;  // means over the queries, in the order of ir_metric_names()
  std::vector<double> ndcg_10;                         // per query
};

// Means in query order, so the result depends on nothing else. At least one query.
IrMetrics mean_metrics(std::span<const QueryMetrics> queries);

// mean_metrics of query_metrics; one list and one set of relevant documents a query.
IrMetrics ir_metrics(std::span<const RankedList> ranked, std::span<const std::vector<RelevantDocument>> relevant,
                     Gain gain);

// A difference of means and its 95 % interval.
struct Interval {
  double mean_difference = 0.0;  // mean(after) - mean(before)
  double low = 0.0;              // 2.5th and 97.5th percentile of the resampled differences
  double high = 0.0;
};

// Paired percentile bootstrap (Efron and Tibshirani 1993, chapter 13): resamples queries with replacement and takes the
// mean difference of each resample. `before` and `after` hold one number a query, at least one, in the same order.
// The same seed gives the same interval everywhere.
Interval paired_bootstrap(std::span<const double> before, std::span<const double> after, std::uint64_t seed,
                          int resamples = 10000);

}  // namespace stft::eval
