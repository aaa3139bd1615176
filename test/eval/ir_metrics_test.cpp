#include "eval/ir_metrics.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "base/error.h"
#include "io/json.h"

namespace stft::eval {
namespace {

struct Case {
  std::vector<RankedList> ranked;
  std::vector<std::vector<RelevantDocument>> relevant;
};

// Ranks the golden file's scores: score descending, then id ascending; queries without relevant documents are left out.
Case read_case(const io::Json& golden) {
  const auto ids = golden["corpus_ids"].get<std::vector<std::string>>();
  Case result;
  for (std::size_t query = 0; query < golden["scores"].size(); ++query) {
    const io::Json& grades = golden["qrels"]["q" + std::to_string(query)];
    if (grades.empty()) continue;
    const auto scores = golden["scores"][query].get<std::vector<double>>();
    std::vector<std::size_t> order(ids.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : ids[a] < ids[b];
    });
    order.resize(std::min(order.size(), static_cast<std::size_t>(kRankingDepth)));
    result.ranked.push_back({{order.begin(), order.end()}});
    std::vector<RelevantDocument> relevant;
    for (const auto& [id, grade] : grades.items()) {
      const auto at = std::find(ids.begin(), ids.end(), id);
      relevant.push_back({at == ids.end() ? kNotInCorpus : at - ids.begin(), grade.get<double>()});
    }
    result.relevant.push_back(std::move(relevant));
  }
  return result;
}

TEST_CASE("every metric equals sentence-transformers'") {
  const io::Json golden = io::read_json_file(std::string(STFT_SOURCE_DIR) + "/test/golden/eval/ir_golden.json");
  REQUIRE(golden["cases"].size() == 4);
  for (const io::Json& one : golden["cases"]) {
    INFO(one["name"].get<std::string>());
    const Case data = read_case(one);
    const IrMetrics metrics = ir_metrics(data.ranked, data.relevant, Gain::kBinary);
    REQUIRE(metrics.values.size() == one["metrics"].size());
    for (const auto& [name, value] : metrics.values) {
      INFO(name);
      CHECK(value == Approx(one["metrics"].at(name).get<double>()).epsilon(0).margin(1e-12));
    }
    const double mean = std::accumulate(metrics.ndcg_10.begin(), metrics.ndcg_10.end(), 0.0) /
                        static_cast<double>(metrics.ndcg_10.size());
    CHECK(metrics.ndcg_10.size() == data.ranked.size());
    CHECK(mean == Approx(one["metrics"]["ndcg@10"].get<double>()).epsilon(0).margin(1e-12));
    const IrMetrics graded = ir_metrics(data.ranked, data.relevant, Gain::kGraded);
    CHECK(graded.values[kNdcg10].second == Approx(one["graded_ndcg@10"].get<double>()).epsilon(0).margin(1e-12));
    for (std::size_t i = 0; i < kIrMetricCount; ++i) {
      if (i != kNdcg10) CHECK(graded.values[i].second == metrics.values[i].second);
    }
  }
}

TEST_CASE("one query by hand") {
  const RankedList ranked{{5, 7, 2, 9}};
  const std::vector<RelevantDocument> relevant{{7, 3.0}, {9, 1.0}, {kNotInCorpus, 2.0}};
  const QueryMetrics metrics = query_metrics(ranked, relevant, Gain::kBinary);
  std::map<std::string, double> by_name;
  for (std::size_t i = 0; i < kIrMetricCount; ++i) by_name[ir_metric_names()[i]] = metrics[i];
  CHECK(by_name["accuracy@1"] == 0.0);
  CHECK(by_name["accuracy@3"] == 1.0);
  CHECK(by_name["precision@3"] == Approx(1.0 / 3));
  CHECK(by_name["precision@10"] == Approx(0.2));
  CHECK(by_name["recall@5"] == Approx(2.0 / 3));
  CHECK(by_name["mrr@10"] == 0.5);
  CHECK(by_name["map@100"] == Approx((1.0 / 2 + 2.0 / 4) / 3));
  const double ideal = 1.0 + 1.0 / std::log2(3.0) + 0.5;
  CHECK(by_name["ndcg@10"] == Approx((1.0 / std::log2(3.0) + 1.0 / std::log2(5.0)) / ideal));
  CHECK(query_metrics(ranked, relevant, Gain::kGraded)[kNdcg10] ==
        Approx((3.0 / std::log2(3.0) + 1.0 / std::log2(5.0)) / (3.0 + 2.0 / std::log2(3.0) + 0.5)));
}

TEST_CASE("nothing ranked") {
  const QueryMetrics metrics = query_metrics({}, std::vector<RelevantDocument>{{0, 1.0}}, Gain::kBinary);
  CHECK(metrics == QueryMetrics{});
  CHECK_THROWS_AS(query_metrics({}, {}, Gain::kBinary), InternalError);
  CHECK_THROWS_AS(mean_metrics({}), InternalError);
}

TEST_CASE("paired bootstrap") {
  std::mt19937_64 engine(3);
  std::vector<double> before(400);
  std::vector<double> after(400);
  double mean = 0.0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    before[i] = static_cast<double>(engine() % 1000) / 1000.0;
    after[i] = before[i] + 0.05 + (static_cast<double>(engine() % 1000) - 499.5) / 2500.0;
    mean += (after[i] - before[i]) / static_cast<double>(before.size());
  }
  const Interval interval = paired_bootstrap(before, after, 42);
  CHECK(interval.mean_difference == Approx(mean));
  // Differences are uniform over 0.4: the normal approximation of the interval is mean +- 1.96 * 0.4 / sqrt(12 * 400).
  const double half_width = 1.96 * 0.4 / std::sqrt(12.0 * 400.0);
  CHECK(interval.low == Approx(mean - half_width).margin(0.1 * half_width));
  CHECK(interval.high == Approx(mean + half_width).margin(0.1 * half_width));

  const Interval again = paired_bootstrap(before, after, 42);
  CHECK(again.low == interval.low);
  CHECK(again.high == interval.high);
  CHECK(paired_bootstrap(before, after, 43).low != interval.low);

  const Interval same = paired_bootstrap(before, before, 1, 100);
  CHECK(same.mean_difference == 0.0);
  CHECK(same.low == 0.0);
  CHECK(same.high == 0.0);
  const Interval single = paired_bootstrap(std::vector<double>{0.25}, std::vector<double>{1.0}, 1, 10);
  CHECK(single.low == 0.75);
  CHECK(single.high == 0.75);
  CHECK_THROWS_AS(paired_bootstrap({}, {}, 1), InternalError);
  CHECK_THROWS_AS(paired_bootstrap(before, std::vector<double>{1.0}, 1), InternalError);
}

}  // namespace
}  // namespace stft::eval
