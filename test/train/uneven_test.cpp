// Ranks with an unequal share of the work: fewer batches, an empty one, other texts to evaluate.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "support/run_fixture.h"
#include "train/evaluation.h"

using namespace stft;

namespace {

constexpr auto kStrategies = {shard::Strategy::kFullShard, shard::Strategy::kShardGradOp, shard::Strategy::kNoShard};

// Of one rank.
struct RankOutcome {
  int64_t batches_with_rows = 0;
  std::vector<at::Tensor> weights;
};

struct Options {
  int64_t ranks = 1;
  shard::Strategy strategy = shard::Strategy::kFullShard;
  bool evaluates = false;  // after every step
};

std::vector<RankOutcome> train_on_ranks(const recipe::Recipe& recipe, const Options& options) {
  std::vector<RankOutcome> outcomes(static_cast<size_t>(options.ranks));
  test::run_ranks(options.ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    RankOutcome& outcome = outcomes[static_cast<size_t>(world->rank())];
    const auto run = test::assemble_on(std::move(world), recipe, options.strategy);
    auto runner = test::runner_of(*run);
    train::EvaluationRunner evaluation(train::evaluation_parts(*run));
    while (const auto step = run->loader->next()) {
      for (const auto& batch : step->micro_batches) {
        outcome.batches_with_rows += batch.local.count > 0 ? 1 : 0;
      }
      runner.run(*step, 1.0);
      if (options.evaluates && !evaluation.run({})) {
        throw std::runtime_error("no evaluation");
      }
    }
    for (size_t i = 0; i < run->model->parameters().size(); ++i) {
      outcome.weights.push_back(run->engine->gather(static_cast<int64_t>(i)).clone());
    }
  });
  return outcomes;
}

double largest_difference(const RankOutcome& a, const RankOutcome& b) {
  double largest = 0;
  for (size_t i = 0; i < a.weights.size(); ++i) {
    largest = std::max(largest, test::max_difference(a.weights[i], b.weights[i]));
  }
  return largest;
}

// 13 rows in steps of 6, 6 and 1, each with a negative.
recipe::Recipe uneven_recipe() {
  auto recipe = test::tiny_recipe();
  test::use_triplets(recipe, 1, 13);
  recipe.train.global_batch_size = 6;
  recipe.train.max_steps = 7;
  recipe.train.shuffle = true;
  recipe.optim.learning_rate = 0.02;
  recipe.model.dropout = 0.1;
  return recipe;
}

}  // namespace

TEST_CASE("ranks with 7, 5 and 5 batches that have rows end with the weights of one rank") {  // T19
  const auto recipe = uneven_recipe();
  const auto one = train_on_ranks(recipe, {}).front();
  auto untrained = recipe;
  untrained.optim.learning_rate = 0;
  CHECK(largest_difference(one, train_on_ranks(untrained, {}).front()) > 1e-3);
  for (const auto strategy : kStrategies) {
    const auto outcomes = train_on_ranks(recipe, {3, strategy});
    CHECK(outcomes[0].batches_with_rows == 7);
    CHECK(outcomes[1].batches_with_rows == 5);
    CHECK(outcomes[2].batches_with_rows == 5);
    CHECK(largest_difference(outcomes[0], one) < 1e-6);
    CHECK(largest_difference(outcomes[1], outcomes[0]) == 0);
    CHECK(largest_difference(outcomes[2], outcomes[0]) == 0);
  }
}

TEST_CASE("the gradients with an empty batch on a rank are those without that rank") {  // T20
  auto recipe = uneven_recipe();
  recipe.loss.scale = 5;  // a scale of 20 multiplies the rounding of the cosines beyond the law's tolerance
  recipe.train.max_steps = 1;
  SECTION("all that the rank has is empty") {
    recipe.data.train.front().limit = 1;
  }
  SECTION("the second of two micro-batches is") {
    recipe.data.train.front().limit = 7;
    recipe.train.global_batch_size = 12;
    recipe.train.gradient_accumulation_steps = 2;
  }
  // Gradients of every parameter on one rank.
  std::vector<at::Tensor> expected;
  {
    const auto run = test::assemble_on(dist::ProcessGroup::single(), recipe, shard::Strategy::kFullShard);
    const auto step = run->loader->next().value();
    REQUIRE(step.micro_batches.back().global_rows == 1);
    auto runner = test::runner_of(*run);
    runner.accumulate(step);
    double largest = 0;
    for (const auto& local : run->engine->local_parameters()) {
      expected.push_back(local.gradient.clone());
      largest = std::max(largest, local.gradient.abs().max().item<double>());
    }
    CHECK(largest > 1e-3);
  }
  for (const auto strategy : kStrategies) {
    std::vector<double> differences(2);
    std::vector<int64_t> rows(2);
    test::run_ranks(2, [&](std::unique_ptr<dist::ProcessGroup> world) {
      const auto rank = static_cast<size_t>(world->rank());
      const auto run = test::assemble_on(std::move(world), recipe, strategy);
      const auto step = run->loader->next().value();
      rows[rank] = step.micro_batches.back().local.count;
      auto runner = test::runner_of(*run);
      runner.accumulate(step);
      const auto locals = run->engine->local_parameters();
      for (size_t i = 0; i < locals.size(); ++i) {
        if (locals[i].layout.own_rows > 0) {
          const auto own = expected[i].narrow(0, locals[i].layout.first_row * locals[i].layout.row_numel,
                                              locals[i].layout.own_numel());
          differences[rank] = std::max(differences[rank], test::max_difference(locals[i].gradient, own));
        }
      }
    });
    CHECK(rows == std::vector<int64_t>{1, 0});
    CHECK(differences[0] < 1e-6);
    CHECK(differences[1] < 1e-6);
  }
}

TEST_CASE("training goes on after an evaluation as if there had been none, to the bit") {  // T24
  auto recipe = uneven_recipe();
  data::DatasetConfig set = test::tiny_recipe().data.train.front();
  set.name = "dev";
  set.limit = 7;  // blocks of 4 and 3 rows
  recipe.data.eval = {set};
  recipe.train.per_device_eval_batch_size = 4;
  eval::EvaluatorConfig beir;
  beir.name = "beir";
  beir.queries.path = test::golden_path("data/beir/queries.jsonl");
  beir.corpus.path = test::golden_path("data/beir/corpus.jsonl");
  beir.qrels_path = test::golden_path("data/beir/qrels/test.tsv");
  beir.batch_size = 7;  // 300 documents in 43 blocks, for 2 and for 3 ranks
  recipe.evaluators = {beir};
  recipe.train.max_steps = 4;
  for (const auto strategy : kStrategies) {
    for (const int64_t ranks : {2, 3}) {
      const auto without = train_on_ranks(recipe, {ranks, strategy});
      const auto with = train_on_ranks(recipe, {ranks, strategy, true});
      for (size_t rank = 0; rank < with.size(); ++rank) {
        CHECK(largest_difference(with[rank], without[rank]) == 0);
      }
    }
  }
}
