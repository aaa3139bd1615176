// The central law: one rank and N ranks give the same numbers, for every strategy.
#include <ATen/ATen.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <mutex>

#include "base/error.h"
#include "checkpoint/export_model.h"
#include "io/file.h"
#include "io/temporary_directory.h"
#include "support/run_fixture.h"
#include "support/same_training.h"
#include "train/evaluation.h"
#include "train/trainer.h"

using namespace stft;
using test::largest_change;
using test::run_ranks;

namespace {

constexpr auto kStrategies = {shard::Strategy::kFullShard, shard::Strategy::kNoShard};

struct Outcome : test::Trained {
  std::vector<std::pair<std::string, double>> metrics;
};

struct Options {
  int64_t ranks = 1;
  shard::Strategy strategy = shard::Strategy::kFullShard;
  bool reduces_every_micro_batch = true;
};

eval::EvaluatorConfig beir_config() {
  eval::EvaluatorConfig config;
  config.name = "beir";
  config.queries.path = test::golden_path("data/beir/queries.jsonl");
  config.corpus.path = test::golden_path("data/beir/corpus.jsonl");
  config.qrels_path = test::golden_path("data/beir/qrels/test.tsv");
  return config;
}

// Trains and evaluates; everything as rank 0 sees it.
Outcome outcome_of(const recipe::Recipe& recipe, const Options& options) {
  Outcome outcome;
  run_ranks(options.ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const bool is_first = world->rank() == 0;
    auto run = test::assemble_on(std::move(world), recipe, options.strategy);
    auto runner = test::runner_of(*run, options.reduces_every_micro_batch);
    auto trained = test::train_all(*run, runner);
    const auto evaluation = train::EvaluationRunner(train::evaluation_parts(*run)).run({});
    if (is_first) {
      outcome = {std::move(trained), evaluation->metrics};
    }
  });
  return outcome;
}

void check_same(const Outcome& found, const Outcome& expected) {
  test::check_same_training(found, expected);
  CHECK(found.metrics.size() == expected.metrics.size());
  for (size_t i = 0; i < found.metrics.size(); ++i) {
    INFO(found.metrics[i].first);
    CHECK(found.metrics[i].second == Approx(expected.metrics[i].second).margin(1e-6));
  }
}

// Weights before any step.
Outcome untrained(recipe::Recipe recipe) {
  recipe.optim.learning_rate = 0;
  recipe.train.max_steps = 1;
  return outcome_of(recipe, {});
}

}  // namespace

TEST_CASE("1, 2 and 3 ranks train alike: shuffled, with dropout, negatives and a short last batch") {  // T1
  auto recipe = test::tiny_recipe();
  test::use_triplets(recipe, 2, 40);
  recipe.train.shuffle = true;
  recipe.train.max_steps = 8;  // 40 rows in batches of 12: the 4th and 8th have 4 rows, on 3 ranks 2, 2, 0
  recipe.train.global_batch_size = 12;
  recipe.optim.learning_rate = 0.02;
  recipe.model.dropout = 0.1;
  recipe.evaluators = {beir_config()};
  const Outcome one = outcome_of(recipe, {1, shard::Strategy::kFullShard});
  CHECK(largest_change(one, untrained(recipe)) > 1e-3);
  CHECK(one.metrics.size() == 15);
  for (const auto strategy : kStrategies) {
    for (const int64_t ranks : {1, 2, 3}) {
      INFO("ranks " << ranks << " sharded " << (strategy == shard::Strategy::kFullShard));
      check_same(outcome_of(recipe, {ranks, strategy}), one);
    }
  }
}

TEST_CASE("1, 2 and 3 ranks train alike with CoSENTLoss, which needs the whole batch") {  // T1
  auto recipe = test::tiny_recipe();
  test::use_scored(recipe);
  recipe.data.train.front().prompts = {{"text_1", "the meaning of "}, {"text_2", "words for it: "}};
  recipe.loss.scale = 5;  // a scale of 20 multiplies the rounding of the cosines beyond the law's tolerance
  recipe.train.shuffle = true;
  recipe.train.max_steps = 4;
  recipe.optim.learning_rate = 0.02;
  recipe.model.dropout = 0.1;
  SECTION("a short last batch, in which the third rank has no row") {
    recipe.data.train.front().limit = 40;  // 12, 12, 12, 4: on 3 ranks 2, 2, 0
    recipe.train.global_batch_size = 12;
  }
  SECTION("accumulation: the batches weigh by their rows, 12 and 1 in the second and fourth step") {
    recipe.data.train.front().limit = 37;
    recipe.train.global_batch_size = 24;
    recipe.train.gradient_accumulation_steps = 2;
  }
  const Outcome one = outcome_of(recipe, {1, shard::Strategy::kFullShard});
  CHECK(largest_change(one, untrained(recipe)) > 1e-3);
  for (const auto strategy : kStrategies) {
    for (const int64_t ranks : {1, 2, 3}) {
      INFO("ranks " << ranks << " sharded " << (strategy == shard::Strategy::kFullShard));
      check_same(outcome_of(recipe, {ranks, strategy}), one);
    }
  }
}

TEST_CASE("1, 2 and 3 ranks train alike with prompts that pooling leaves out") {
  auto recipe = test::tiny_recipe();
  SECTION("an encoder that averages") {}
  SECTION("a decoder, averaged with rising weights, and its last token") {
    recipe.model.name_or_path = test::golden_path("tiny_llama");
    recipe.model.pooling = {model::PoolingMode::kWeightedMean, model::PoolingMode::kLastToken};
    recipe.loss.scale = 5;  // as above
  }
  test::use_triplets(recipe, 2, 28);
  recipe.model.include_prompt = false;
  recipe.model.prompts = {{"query", "the meaning of "}, {"document", "words for it: "}};
  recipe.data.train.front().prompts = {{"anchor", "query"}, {"positive", "document"}, {"negative_2", "not "}};
  recipe.train.max_steps = 3;  // 12, 12, 4: on 3 ranks 2, 2, 0
  recipe.train.global_batch_size = 12;
  recipe.optim.learning_rate = 0.02;
  recipe.model.dropout = 0.1;
  recipe.evaluators = {beir_config()};
  recipe.data.eval = recipe.data.train;
  recipe.data.eval.front().name = "rows";
  const Outcome one = outcome_of(recipe, {1, shard::Strategy::kFullShard});
  CHECK(largest_change(one, untrained(recipe)) > 1e-3);
  for (const int64_t ranks : {2, 3}) {
    INFO("ranks " << ranks);
    check_same(outcome_of(recipe, {ranks, shard::Strategy::kFullShard}), one);
  }
  recipe.model.include_prompt = true;
  CHECK(outcome_of(recipe, {1, shard::Strategy::kFullShard}).losses[0] != Approx(one.losses[0]).epsilon(1e-4));
}

TEST_CASE("the same run twice gives the same bytes") {  // T31
  auto recipe = test::tiny_recipe();
  recipe.train.global_batch_size = 12;
  recipe.model.dropout = 0.1;
  for (const auto strategy : kStrategies) {
    const Outcome first = outcome_of(recipe, {2, strategy});
    const Outcome second = outcome_of(recipe, {2, strategy});
    CHECK(first.losses == second.losses);
    CHECK(largest_change(first, second) == 0);
    CHECK(largest_change(first, untrained(recipe)) > 1e-4);
  }
}

TEST_CASE("accumulation: reducing once or every time is one big batch for a loss without in-batch negatives") {  // T11
  // One row a micro-batch and one hard negative each: the candidates of a row are its own positive and negative only.
  auto big = test::tiny_recipe();
  test::use_triplets(big, 1, 4);
  big.optim.learning_rate = 0.02;
  big.loss.scale = 5;  // a scale of 20 multiplies the rounding of the cosines beyond the law's tolerance
  big.train.max_steps = 2;
  auto accumulated = big;
  accumulated.train.per_device_train_batch_size = 1;
  accumulated.train.gradient_accumulation_steps = 4;
  const Outcome each = outcome_of(accumulated, {1, shard::Strategy::kFullShard, true});
  const Outcome once = outcome_of(accumulated, {1, shard::Strategy::kFullShard, false});
  check_same(once, each);
  CHECK(largest_change(each, untrained(accumulated)) > 1e-4);

  accumulated.train.per_device_train_batch_size = 2;
  accumulated.train.gradient_accumulation_steps = 2;
  const Outcome two_each = outcome_of(accumulated, {1, shard::Strategy::kFullShard, true});
  accumulated.train.per_device_train_batch_size = 1;
  const Outcome each_of_2 = outcome_of(accumulated, {2, shard::Strategy::kFullShard, true});
  const Outcome once_of_2 = outcome_of(accumulated, {2, shard::Strategy::kFullShard, false});
  check_same(each_of_2, two_each);
  check_same(once_of_2, two_each);
  // Three groups; the gather of the embeddings adds one a micro-batch.
  CHECK(each_of_2.last_step.reduce_scatters == 2 * 3 + 2);
  CHECK(once_of_2.last_step.reduce_scatters == 3 + 2);
}

TEST_CASE("micro-batches of unequal size weigh by their rows") {  // T12, A18
  // 5 rows, accumulation 2: a step of 4 + 1 rows. The gradient is the row-weighted mean of the two micro-batches'.
  auto recipe = test::tiny_recipe();
  test::use_triplets(recipe, 1, 5);
  recipe.train.per_device_train_batch_size = 4;
  recipe.train.gradient_accumulation_steps = 2;
  recipe.train.max_steps = 1;
  auto run = test::assemble_on(dist::ProcessGroup::single(), recipe, shard::Strategy::kFullShard);
  const auto step = run->loader->next();
  REQUIRE(step->micro_batches.size() == 2);
  REQUIRE(step->micro_batches[1].global_rows == 1);
  auto runner = test::runner_of(*run);
  const double loss = runner.accumulate(*step);
  const auto alone = [&](size_t index) {
    data::LocalStep one = *step;
    one.micro_batches = {step->micro_batches[index]};
    one.micro_batches.front().step_rows = one.micro_batches.front().global_rows;
    return runner.accumulate(one);
  };
  const double first = alone(0);
  const double second = alone(1);
  CHECK(loss == Approx((4 * first + second) / 5).epsilon(1e-6));
  CHECK(std::fabs(loss - (first + second) / 2) > 1e-3);
}

TEST_CASE("clipping uses the global norm") {  // T13, A19
  auto recipe = test::tiny_recipe();
  recipe.train.global_batch_size = 12;
  recipe.train.max_steps = 5;
  recipe.optim.max_grad_norm = 0.01;
  recipe.optim.learning_rate = 1.0;
  const Outcome one = outcome_of(recipe, {});
  const double moved = largest_change(one, untrained(recipe));
  CHECK(moved > 1e-4);
  CHECK(moved < 5 * 0.01);
  for (const auto strategy : kStrategies) {
    for (const int64_t ranks : {2, 3}) {
      check_same(outcome_of(recipe, {ranks, strategy}), one);
    }
  }
}

TEST_CASE("after a step at learning rate 0 the export is the input, byte for byte, at any number of ranks") {  // A22
  for (const std::string name : {"tiny_bert", "tiny_bert_dense"}) {
    const std::string input = io::read_text_file(test::golden_path(name + "/model.safetensors"));
    for (const auto strategy : kStrategies) {
      for (const int64_t ranks : {1, 2, 3}) {
        const test::TemporaryDirectory directory;
        auto recipe = test::tiny_recipe();
        recipe.model.name_or_path = test::golden_path(name);
        recipe.train.global_batch_size = 12;
        recipe.train.max_steps = 1;
        recipe.optim.learning_rate = 0;
        run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
          auto run = test::assemble_on(std::move(world), recipe, strategy);
          test::runner_of(*run).run(*run->loader->next(), 0.0);
          checkpoint::export_model({*run->model, *run->weights, *run->engine, run->mesh->world()},
                                   directory.path("final"));
        });
        CHECK(io::read_text_file(directory.path("final/model.safetensors")) == input);
        CHECK(io::read_text_file(directory.path("final/tokenizer.json")) ==
              io::read_text_file(test::golden_path(name + "/tokenizer.json")));
        CHECK(io::read_text_file(directory.path("final/modules.json")) ==
              io::read_text_file(test::golden_path(name + "/modules.json")));
        if (name == "tiny_bert_dense") {
          CHECK(io::read_text_file(directory.path("final/2_Dense/model.safetensors")) ==
                io::read_text_file(test::golden_path(name + "/2_Dense/model.safetensors")));
        }
      }
    }
  }
}

TEST_CASE("an export with changed modules loads again and gives the same vectors") {
  const test::TemporaryDirectory directory;
  auto recipe = test::tiny_recipe();
  recipe.model.pooling = {model::PoolingMode::kMean, model::PoolingMode::kCls};
  recipe.model.dense = model::DenseConfig{24, model::DenseActivation::kTanh, true};
  recipe.model.max_seq_length = 20;
  recipe.model.prompts = {{"query", "find: "}};
  recipe.train.per_device_train_batch_size = 12;
  std::vector<at::Tensor> trained;
  const std::vector<std::string> texts = {"a first text", "the second one is somewhat longer than the first"};
  const auto embed = [&](train::Run& run) {
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    const shard::ShardEngine::KeepUnsharded keep(*run.engine);
    return eval::Embedder(*run.model, *run.tokenizer, model::Layout::kPacked).embed(views, {});
  };
  auto run = test::assemble_on(dist::ProcessGroup::single(), recipe, shard::Strategy::kFullShard);
  auto runner = test::runner_of(*run);
  while (auto batch = run->loader->next()) {
    runner.run(*batch, 1.0);
  }
  checkpoint::export_model({*run->model, *run->weights, *run->engine, run->mesh->world()}, directory.path("final"));
  const auto expected = embed(*run);

  auto again = test::tiny_recipe();
  again.model.name_or_path = directory.path("final");
  auto reloaded = test::assemble_on(dist::ProcessGroup::single(), again, shard::Strategy::kFullShard);
  CHECK(reloaded->model->spec().embedding_dim() == 24);
  CHECK(reloaded->model->max_seq_length() == 20);
  CHECK(reloaded->model->spec().prompts.at("query") == "find: ");
  CHECK(test::max_difference(embed(*reloaded), expected) < 1e-6);
}

TEST_CASE("a non-finite loss is seen by all ranks and nothing is updated") {
  std::atomic<int> held{0};
  run_ranks(2, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const bool is_first = world->rank() == 0;
    auto recipe = test::tiny_recipe();
    recipe.train.global_batch_size = 12;
    auto run = test::assemble_on(std::move(world), recipe, shard::Strategy::kFullShard);
    if (is_first) {
      run->engine->local_parameters().front().value.fill_(std::numeric_limits<float>::quiet_NaN());
    }
    const auto before = run->engine->local_parameters().back().value.clone();
    const auto result = test::runner_of(*run).run(*run->loader->next(), 1.0);
    held += !result.is_finite && at::equal(before, run->engine->local_parameters().back().value) ? 1 : 0;
  });
  CHECK(held == 2);
}

TEST_CASE("fewer rows than a batch with drop_last: refused before any weight is read") {  // A04
  auto recipe = test::tiny_recipe();
  recipe.data.train.front().limit = 3;
  recipe.train.per_device_train_batch_size = 4;
  recipe.train.dataloader_drop_last = true;
  const auto message = test::message_of<UserError>(
      [&] { test::assemble_on(dist::ProcessGroup::single(), recipe, shard::Strategy::kFullShard); });
  CHECK_THAT(message, Catch::Contains("3 rows make 0 steps with 1 ranks"));
}
