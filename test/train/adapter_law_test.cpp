// Adapters under every sharding strategy: one rank and N ranks train alike, and the base stays as it was.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <mutex>

#include "support/run_fixture.h"
#include "support/same_training.h"

using namespace stft;
using test::largest_change;
using test::run_ranks;

namespace {

struct Outcome : test::Trained {
  std::vector<bool> trainable;
  std::vector<std::string> names;
  std::vector<int64_t> optimizer_bytes;  // by rank
  int64_t trainable_numel = 0;
  int64_t reduced_bytes = 0;
};

recipe::Recipe lora_recipe() {
  auto recipe = test::tiny_recipe();
  test::use_triplets(recipe, 1, 40);
  recipe.train.global_batch_size = 12;  // 12, 12, 12, 4
  recipe.train.max_steps = 5;
  recipe.train.shuffle = true;
  recipe.model.dropout = 0.1;
  recipe.optim.learning_rate = 0.5;
  peft::AdapterConfig adapter;
  adapter.r = 5;  // rows that 2 and 3 ranks do not share evenly
  adapter.lora_alpha = 10;
  adapter.lora_dropout = 0.1;
  adapter.target_modules = {"all-linear"};
  recipe.adapter = adapter;
  return recipe;
}

Outcome outcome_of(const recipe::Recipe& recipe, int64_t ranks, shard::Strategy strategy,
                   bool reduces_every_micro_batch = true) {
  Outcome outcome;
  outcome.optimizer_bytes.resize(static_cast<size_t>(ranks));
  std::mutex mutex;
  run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const int64_t rank = world->rank();
    auto run = test::assemble_on(std::move(world), recipe, strategy);
    auto runner = test::runner_of(*run, reduces_every_micro_batch);
    auto trained = test::train_all(*run, runner);
    const std::lock_guard lock(mutex);
    outcome.optimizer_bytes[static_cast<size_t>(rank)] = run->optimizer->state_bytes();
    if (rank != 0) {
      return;
    }
    static_cast<test::Trained&>(outcome) = std::move(trained);
    for (const model::Parameter& parameter : run->model->parameters()) {
      outcome.trainable.push_back(parameter.is_trainable);
      outcome.names.push_back(parameter.name);
      outcome.trainable_numel += parameter.is_trainable ? parameter.numel() : 0;
    }
  });
  return outcome;
}

Outcome untrained(recipe::Recipe recipe) {
  recipe.optim.learning_rate = 0;
  recipe.train.max_steps = 1;
  return outcome_of(recipe, 1, shard::Strategy::kFullShard);
}

// The base is bit by bit what it was, and every B moved.
void check_moved(const Outcome& trained, const Outcome& before) {
  for (size_t i = 0; i < trained.weights.size(); ++i) {
    INFO(trained.names[i]);
    const bool is_equal = at::equal(trained.weights[i], before.weights[i]);
    if (!trained.trainable[i]) {
      CHECK(is_equal);
    } else if (trained.names[i].find("lora_B") != std::string::npos) {
      CHECK_FALSE(is_equal);
      CHECK(before.weights[i].abs().max().item<double>() == 0);
    }
  }
}

constexpr auto kStrategies = {shard::Strategy::kFullShard, shard::Strategy::kShardGradOp, shard::Strategy::kNoShard};

void check_law(const recipe::Recipe& recipe) {
  const Outcome one = outcome_of(recipe, 1, shard::Strategy::kFullShard);
  check_moved(one, untrained(recipe));
  for (const auto strategy : kStrategies) {
    for (const int64_t ranks : {1, 2, 3}) {
      INFO("ranks " << ranks << " strategy " << static_cast<int>(strategy));
      const Outcome found = outcome_of(recipe, ranks, strategy);
      test::check_same_training(found, one);
      check_moved(found, untrained(recipe));
    }
  }
}

}  // namespace

TEST_CASE("T8: LoRA on 1, 2 and 3 ranks trains alike under every strategy; the base stays bit by bit") {
  check_law(lora_recipe());
}

TEST_CASE("LoRA trains alike with hybrid shards, parts kept after the forward, and shards in host memory") {
  auto recipe = lora_recipe();
  const Outcome one = outcome_of(recipe, 1, shard::Strategy::kFullShard);
  auto strategy = shard::Strategy::kFullShard;
  SECTION("hybrid") {
    strategy = shard::Strategy::kHybridShard;
    recipe.sharding.hybrid_shard_size = 2;
  }
  SECTION("parts") {
    recipe.sharding.reshard_after_forward_size = 2;
  }
  SECTION("offload") {
    recipe.sharding.cpu_offload = true;
  }
  const Outcome four = outcome_of(recipe, 4, strategy);
  test::check_same_training(four, one);
  check_moved(four, untrained(lora_recipe()));
}

TEST_CASE("DoRA, rsLoRA with patterns, biases, saved modules and tables train alike") {
  auto recipe = lora_recipe();
  recipe.optim.learning_rate = 0.1;
  peft::AdapterConfig& adapter = *recipe.adapter;
  SECTION("DoRA") {
    adapter.use_dora = true;
  }
  SECTION("rsLoRA, patterns, bias of B, a normal A") {
    adapter.use_rslora = true;
    adapter.lora_bias = true;
    adapter.rank_pattern = {{"intermediate.dense", 2}};
    adapter.alpha_pattern = {{"value", 16}};
    adapter.init_lora_weights = peft::LoraInit::kGaussian;
    recipe.optim.learning_rate = 0.02;  // the scales are large, and so is what they make of rounding
  }
  SECTION("biases and saved modules") {
    adapter.target_modules = {"query"};
    adapter.target_modules_is_list = true;
    adapter.bias = peft::LoraBias::kAll;
    adapter.modules_to_save = {"embeddings.LayerNorm", "intermediate"};
  }
  SECTION("a table of embeddings") {
    adapter.target_modules = {"word_embeddings", "value"};
    adapter.target_modules_is_list = true;
    recipe.optim.learning_rate = 0.01;
  }
  const Outcome one = outcome_of(recipe, 1, shard::Strategy::kFullShard);
  CHECK(largest_change(one, untrained(recipe)) > 1e-4);
  for (const int64_t ranks : {2, 3}) {
    INFO("ranks " << ranks);
    test::check_same_training(outcome_of(recipe, ranks, shard::Strategy::kFullShard), one);
  }
  test::check_same_training(outcome_of(recipe, 2, shard::Strategy::kNoShard), one);
}

TEST_CASE("T18, A21: checkpointing, accumulation and sharding change nothing of LoRA") {
  for (const int64_t accumulation : {1, 2}) {
    auto recipe = lora_recipe();
    recipe.train.global_batch_size = 12 * accumulation;
    recipe.train.gradient_accumulation_steps = accumulation;
    recipe.train.max_steps = 3;
    const Outcome plain = outcome_of(recipe, 1, shard::Strategy::kFullShard);
    check_moved(plain, untrained(recipe));
    for (const bool recomputes : {false, true}) {
      recipe.train.gradient_checkpointing = recomputes;
      for (const auto strategy : {shard::Strategy::kFullShard, shard::Strategy::kNoShard}) {
        for (const bool reduces : {true, false}) {
          INFO("accumulation " << accumulation << " recomputes " << recomputes << " strategy "
                               << static_cast<int>(strategy) << " reduces " << reduces);
          test::check_same_training(outcome_of(recipe, 2, strategy, reduces), plain);
        }
      }
    }
  }
}

TEST_CASE("A20: AdamW keeps 8 bytes of state for every trained value, shared by the ranks") {
  auto recipe = lora_recipe();
  recipe.optim.optim = optim::OptimizerType::kAdamW;
  recipe.optim.learning_rate = 1e-3;
  recipe.adapter->r = 4;
  recipe.train.max_steps = 2;
  const Outcome found = outcome_of(recipe, 2, shard::Strategy::kFullShard);
  CHECK(found.trainable_numel == 2 * (4 * 4 * 64 + 2 * 4 * 96));  // r * (in + out) of each projection of two layers
  for (const int64_t bytes : found.optimizer_bytes) {
    CHECK(bytes == 8 * found.trainable_numel / 2);
  }
}

TEST_CASE("bf16 compute trains an adapter whose own weights are fp32") {
  auto recipe = lora_recipe();
  recipe.train.bf16 = true;
  recipe.model.dropout = 0.0;
  recipe.adapter->lora_dropout = 0;
  const Outcome one = outcome_of(recipe, 1, shard::Strategy::kFullShard);
  check_moved(one, untrained(recipe));
  const Outcome two = outcome_of(recipe, 2, shard::Strategy::kFullShard);
  for (size_t i = 0; i < one.losses.size(); ++i) {
    CHECK(two.losses[i] == Approx(one.losses[i]).epsilon(2e-2));
  }
  for (size_t i = 0; i < two.weights.size(); ++i) {
    CHECK(two.weights[i].scalar_type() == at::kFloat);
  }
}

TEST_CASE("the first values of an adapter do not depend on the number of ranks") {
  const auto recipe = lora_recipe();
  auto still = recipe;
  still.optim.learning_rate = 0;
  const Outcome one = outcome_of(still, 1, shard::Strategy::kFullShard);
  const Outcome three = outcome_of(still, 3, shard::Strategy::kFullShard);
  for (size_t i = 0; i < one.weights.size(); ++i) {
    CHECK(at::equal(one.weights[i], three.weights[i]));
  }
}
