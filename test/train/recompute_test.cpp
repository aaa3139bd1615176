// train.gradient_checkpointing changes memory and time, and no number.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <vector>

#include "support/run_fixture.h"

using namespace stft;

namespace {

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<at::Tensor> weights;  // whole
};

// Trains on `ranks` ranks; everything as rank 0 sees it.
Outcome train(recipe::Recipe recipe, int64_t ranks, shard::Strategy strategy, bool recomputes) {
  recipe.train.gradient_checkpointing = recomputes;
  Outcome outcome;
  test::run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const bool is_first = world->rank() == 0;
    auto run = test::assemble_on(std::move(world), recipe, strategy);
    auto runner = test::runner_of(*run, strategy == shard::Strategy::kFullShard);
    std::vector<double> losses, norms;
    while (auto step = run->loader->next()) {
      const auto result = runner.run(*step, recipe.optim.learning_rate);
      losses.push_back(result.loss);
      norms.push_back(result.grad_norm);
    }
    std::vector<at::Tensor> weights;
    for (size_t i = 0; i < run->model->parameters().size(); ++i) {
      weights.push_back(run->engine->gather(static_cast<int64_t>(i)).clone());
    }
    if (is_first) {
      outcome = {losses, norms, weights};
    }
  });
  return outcome;
}

void check_same_bits(const recipe::Recipe& recipe) {
  for (const auto strategy : {shard::Strategy::kFullShard, shard::Strategy::kNoShard}) {
    for (const int64_t ranks : {1, 2, 3}) {
      INFO("ranks " << ranks << " sharded " << (strategy == shard::Strategy::kFullShard));
      const Outcome kept = train(recipe, ranks, strategy, false);
      const Outcome recomputed = train(recipe, ranks, strategy, true);
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

}  // namespace

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
