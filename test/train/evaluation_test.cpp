#include "train/evaluation.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "io/temporary_directory.h"
#include "support/plain_model.h"
#include "support/run_fixture.h"

using namespace stft;

namespace {

data::DatasetConfig eval_set(const std::string& name, int64_t rows) {
  data::DatasetConfig set;
  set.name = name;
  set.paths = {test::golden_path("data/pairs.jsonl")};
  set.columns.anchor = "anchor";
  set.columns.positive = "positive";
  set.limit = rows;
  return set;
}

recipe::Recipe recipe_with(std::vector<data::DatasetConfig> sets) {
  recipe::Recipe recipe = test::tiny_recipe();
  recipe.data.eval = std::move(sets);
  recipe.train.per_device_eval_batch_size = 4;
  return recipe;
}

// What every rank found.
std::vector<train::Evaluation> evaluate(const recipe::Recipe& recipe, int64_t ranks) {
  std::vector<train::Evaluation> found(static_cast<size_t>(ranks));
  test::run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const auto rank = static_cast<size_t>(world->rank());
    const auto run = test::assemble_on(std::move(world), recipe, shard::Strategy::kFullShard);
    found[rank] = train::EvaluationRunner(train::evaluation_parts(*run)).run({}).value();
  });
  return found;
}

double value_of(const train::Metrics& metrics, const std::string& name) {
  for (const auto& [key, value] : metrics) {
    if (key == name) {
      return value;
    }
  }
  FAIL("no metric " << name);
  return 0;
}

}  // namespace

TEST_CASE(
    "the evaluation loss of 7 rows in blocks of 4 is the row-weighted mean, the peer's, at 1 to 3 ranks") {  // A18
  const auto golden = test::golden_json("eval_loss_tiny.json");
  const auto recipe = recipe_with({eval_set("dev", 7)});
  const auto one = evaluate(recipe, 1).front();
  REQUIRE(one.metrics.size() == 2);
  CHECK(one.metrics[0].first == "eval_loss");
  CHECK(one.metrics[1].first == "eval_dev_loss");
  CHECK(one.metrics[0].second == one.metrics[1].second);
  CHECK(one.metrics[0].second == Approx(golden["MultipleNegativesRankingLoss"].get<double>()).epsilon(1e-6));

  const test::PlainModel tiny(test::golden_path("tiny_bert"));
  const auto rows = data::Dataset::load(eval_set("dev", 7));
  double sum = 0;
  for (int64_t row = 0; row < 7; ++row) {
    const int64_t first = row < 4 ? 0 : 4;
    std::vector<std::string> texts = {std::string(rows.text(row, 0))};
    for (int64_t other = first; other < std::min<int64_t>(first + 4, 7); ++other) {
      texts.emplace_back(rows.text(other, 1));
    }
    const auto vectors = tiny.embed(texts, model::Layout::kPacked).detach();
    const auto scores = at::mv(vectors.narrow(0, 1, vectors.size(0) - 1), vectors[0]) * 20.0;
    sum += (scores.logsumexp(0) - scores[row - first]).item<double>();
  }
  CHECK(one.metrics[0].second == Approx(sum / 7).epsilon(1e-6));
  CHECK(one.results.front().rows == 7);
  CHECK(one.results.front().per_query.empty());
  CHECK_FALSE(one.results.front().csv.has_value());
  for (const int64_t ranks : {2, 3}) {
    for (const auto& found : evaluate(recipe, ranks)) {
      CHECK(found.metrics == one.metrics);
    }
  }
}

TEST_CASE("CoSENT's evaluation loss is the peer's") {
  auto set = eval_set("scored", 7);
  set.paths = {test::golden_path("data/scored_pairs.jsonl")};
  set.columns = {};
  set.columns.text_1 = "a";
  set.columns.text_2 = "b";
  set.columns.score = "score";
  auto recipe = recipe_with({set});
  recipe.data.train = {set};
  recipe.loss.type = loss::LossType::kCoSent;
  const double golden = test::golden_json("eval_loss_tiny.json")["CoSENTLoss"].get<double>();
  // The loss takes 20 times the similarities, and so their rounding.
  CHECK(evaluate(recipe, 1).front().metrics[0].second == Approx(golden).epsilon(1e-5));
  CHECK(evaluate(recipe, 2)[1].metrics == evaluate(recipe, 1)[0].metrics);
}

TEST_CASE("eval_loss weights several sets by their rows; an evaluator's metrics come first") {
  auto recipe = recipe_with({eval_set("a", 7), eval_set("b", 2)});
  eval::EvaluatorConfig sts;
  sts.type = eval::EvaluatorType::kEmbeddingSimilarity;
  sts.name = "sts";
  sts.pairs = {test::golden_path("data/scored_pairs.jsonl"), "a", "b", "score"};
  recipe.evaluators = {sts};
  const auto found = evaluate(recipe, 2).back();
  REQUIRE(found.metrics.size() == 5);
  CHECK(found.metrics.front().first == "sts_pearson_cosine");
  CHECK(found.results.back().rows == 9);
  CHECK(value_of(found.metrics, "eval_loss") ==
        Approx((7 * value_of(found.metrics, "eval_a_loss") + 2 * value_of(found.metrics, "eval_b_loss")) / 9));
  CHECK(value_of(found.metrics, "eval_a_loss") != Approx(value_of(found.metrics, "eval_b_loss")));
}

TEST_CASE("one rank asked to stop ends the evaluation on all; the next one works") {
  auto recipe = recipe_with({eval_set("dev", 40)});
  eval::EvaluatorConfig sts;
  sts.type = eval::EvaluatorType::kEmbeddingSimilarity;
  sts.pairs = {test::golden_path("data/scored_pairs.jsonl"), "a", "b", "score"};
  recipe.evaluators = {sts};
  const auto expected = evaluate(recipe, 1).front().metrics;
  for (const int blocks : {0, 3, 16}) {  // 16: in the evaluation loss, after the evaluator
    int asked_at_stop = 0;
    test::run_ranks(2, [&](std::unique_ptr<dist::ProcessGroup> world) {
      const bool stops = world->rank() == 1;
      const auto run = test::assemble_on(std::move(world), recipe, shard::Strategy::kFullShard);
      train::EvaluationRunner runner(train::evaluation_parts(*run));
      int asked = 0;
      const auto stopped = runner.run([&] { return stops && asked++ >= blocks; });
      if (stops) {
        asked_at_stop = asked;
      }
      const auto next = runner.run({});
      if (stopped.has_value() || !next.has_value() || next->metrics != expected) {
        throw std::runtime_error("stopped on one rank only, or unable to go on");
      }
    });
    CHECK(asked_at_stop == blocks + 1);
  }
}

TEST_CASE("the parameters are sharded again after an evaluation that was given up") {
  const auto recipe = recipe_with({eval_set("dev", 7)});
  test::run_ranks(2, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const auto run = test::assemble_on(std::move(world), recipe, shard::Strategy::kFullShard);
    train::EvaluationRunner runner(train::evaluation_parts(*run));
    runner.run([] { return true; });
    auto step_runner = test::runner_of(*run);
    const auto result = step_runner.run(run->loader->next().value(), 1.0);
    if (!result.is_finite) {
      throw std::runtime_error("no step after a stopped evaluation");
    }
  });
}
