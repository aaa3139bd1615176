// train.gradient_checkpointing changes memory and time, and no number.
#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <string_view>
#include <vector>

#include "io/temporary_directory.h"
#include "support/same_training.h"
#include "train/checkpoint_run.h"

using namespace stft;

namespace {

// Trains on `ranks` ranks; everything as rank 0 sees it.
test::Trained train(recipe::Recipe recipe, int64_t ranks, shard::Strategy strategy, bool recomputes) {
  recipe.train.gradient_checkpointing = recomputes;
  test::Trained outcome;
  test::run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const bool is_first = world->rank() == 0;
    auto run = test::assemble_on(std::move(world), recipe, strategy);
    auto runner = test::runner_of(*run, strategy == shard::Strategy::kFullShard);
    auto trained = test::train_all(*run, runner);
    if (is_first) {
      outcome = std::move(trained);
    }
  });
  return outcome;
}

void check_same_bits(const recipe::Recipe& recipe) {
  for (const auto strategy : {shard::Strategy::kFullShard, shard::Strategy::kShardGradOp, shard::Strategy::kNoShard}) {
    for (const int64_t ranks : {1, 2, 3}) {
      INFO("ranks " << ranks << " sharded " << (strategy == shard::Strategy::kFullShard));
      const auto kept = train(recipe, ranks, strategy, false);
      const auto recomputed = train(recipe, ranks, strategy, true);
      REQUIRE(kept.losses.size() == 3);
      CHECK(kept.losses[2] != kept.losses[0]);
      CHECK(recomputed.losses == kept.losses);
      CHECK(recomputed.norms == kept.norms);
      REQUIRE(recomputed.weights.size() == kept.weights.size());
      for (size_t i = 0; i < kept.weights.size(); ++i) {
        CHECK(at::equal(recomputed.weights[i], kept.weights[i]));
      }
    }
  }
}

// How often layers have computed; LibTorch's callbacks carry no state.
std::atomic<int> layer_runs{0};

std::unique_ptr<at::ObserverContext> count_layer_runs(const at::RecordFunction& function) {
  layer_runs += std::string_view(function.name()) == "aten::gelu" ? 1 : 0;
  return nullptr;
}

}  // namespace

TEST_CASE("with the recipe's key every layer computes twice a step, and only in training") {
  const test::TemporaryDirectory directory;
  auto recipe = test::checkpoint_recipe(directory.path("run"));
  recipe.train.max_steps = 3;
  data::DatasetConfig held_out = recipe.data.train.front();
  held_out.name = "held_out";
  held_out.limit = 4;
  recipe.data.eval = {held_out};
  recipe.train.eval_strategy = recipe::EvalStrategy::kNo;
  SECTION("training") {}
  SECTION("with an evaluation, which computes once") {
    recipe.train.eval_strategy = recipe::EvalStrategy::kSteps;
    recipe.train.eval_steps = 3;
  }
  const auto runs_with = [&](bool recomputes) {
    recipe.train.gradient_checkpointing = recomputes;
    recipe.run.output_dir = directory.path(recomputes ? "recomputed" : "kept");
    layer_runs = 0;
    const auto handle = at::addGlobalCallback(at::RecordFunctionCallback(&count_layer_runs));
    test::train_run(recipe, {});
    at::removeCallback(handle);
    return layer_runs.load();
  };
  const int kept = runs_with(false);
  const int layers_and_steps = 2 * 3;
  CHECK(kept >= layers_and_steps);
  CHECK(runs_with(true) == kept + layers_and_steps);
}

TEST_CASE("1, 2 and 3 ranks train to the same bits with gradient checkpointing on and off") {  // T17, A21
  auto recipe = test::tiny_recipe();
  test::use_triplets(recipe, 2, 40);
  recipe.train.global_batch_size = 12;
  recipe.optim.learning_rate = 0.02;
  recipe.model.dropout = 0.1;
  SECTION("one reduction a step") {
    check_same_bits(recipe);
  }
  SECTION("accumulation over two micro-batches") {
    recipe.train.gradient_accumulation_steps = 2;
    check_same_bits(recipe);
  }
}
