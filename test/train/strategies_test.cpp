// The central law for what the recipe's `sharding:` block may say: the same numbers whatever it says.
#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <mutex>
#include <set>

#include "checkpoint/export_model.h"
#include "io/file.h"
#include "io/temporary_directory.h"
#include "support/run_fixture.h"
#include "support/same_training.h"
#include "train/memory_report.h"
#include "train/sharding_choice.h"

using namespace stft;
using shard::Strategy;
using test::run_ranks;

namespace {

struct Outcome : test::Trained {
  std::string exported;  // model.safetensors
  bool reduces_every_micro_batch = true;
  train::IntegerLists planned, measured;
};

recipe::Recipe short_recipe() {
  auto recipe = test::tiny_recipe();
  test::use_triplets(recipe, 1, 40);
  recipe.train.shuffle = true;
  recipe.train.max_steps = 4;  // 12, 12, 12 and 4 rows
  recipe.train.global_batch_size = 12;
  recipe.optim.learning_rate = 0.02;
  recipe.optim.max_grad_norm = 1.0;
  recipe.model.dropout = 0.1;
  return recipe;
}

Outcome outcome_of(const recipe::Recipe& recipe, int64_t ranks) {
  Outcome outcome;
  const test::TemporaryDirectory directory;
  run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const bool is_first = world->rank() == 0;
    auto run = test::assemble_on(std::move(world), recipe, recipe.sharding.strategy);
    auto runner = test::runner_of(*run, run->reduces_every_micro_batch);
    auto trained = test::train_all(*run, runner);
    checkpoint::export_model({*run->model, *run->weights, *run->engine, run->mesh->world()}, directory.path("final"));
    const auto planned = train::planned_memory(*run);
    const auto measured = train::measured_memory(*run);
    if (is_first) {
      outcome = {std::move(trained), {}, run->reduces_every_micro_batch, planned, measured};
    }
  });
  outcome.exported = io::read_text_file(directory.path("final/model.safetensors"));
  return outcome;
}

struct Variant {
  std::string name;
  std::vector<int64_t> ranks;
  std::function<void(shard::ShardConfig&)> apply;
};

std::vector<Variant> variants() {
  return {
      {"shard_grad_op", {1, 2, 3}, [](auto& s) { s.strategy = Strategy::kShardGradOp; }},
      {"hybrid of one group", {1, 2, 3}, [](auto& s) { s.strategy = Strategy::kHybridShard; }},
      {"hybrid of groups of one",
       {2, 3},
       [](auto& s) {
         s.strategy = Strategy::kHybridShard;
         s.hybrid_shard_size = 1;
       }},
      {"hybrid 2 x 2",
       {4},
       [](auto& s) {
         s.strategy = Strategy::kHybridShard;
         s.hybrid_shard_size = 2;
       }},
      {"auto", {1, 2, 3}, [](auto& s) { s.strategy = Strategy::kAuto; }},
      {"full_shard kept in parts of two", {4}, [](auto& s) { s.reshard_after_forward_size = 2; }},
      {"reshard_after_forward false", {2, 3}, [](auto& s) { s.reshard_after_forward = false; }},
      {"offloaded", {1, 2, 3}, [](auto& s) { s.cpu_offload = true; }},
      {"no_shard, offloaded",
       {2},
       [](auto& s) {
         s.strategy = Strategy::kNoShard;
         s.cpu_offload = true;
       }},
      {"nothing ahead", {2}, [](auto& s) { s.prefetch = 0; }},
      {"all ahead", {2}, [](auto& s) { s.prefetch = 8; }},
      {"merged", {2, 3}, [](auto& s) { s.wrap = shard::WrapKind::kAuto; }},
      {"named modules",
       {2},
       [](auto& s) {
         s.wrap = shard::WrapKind::kModules;
         s.wrap_modules = {"layer.1"};
       }},
  };
}

}  // namespace

TEST_CASE("every strategy, grouping and place trains alike and exports the same numbers") {
  const auto recipe = short_recipe();
  const Outcome one = outcome_of(recipe, 1);
  for (const Variant& variant : variants()) {
    for (const int64_t ranks : variant.ranks) {
      INFO(variant.name << " on " << ranks << " ranks");
      auto changed = recipe;
      variant.apply(changed.sharding);
      const Outcome found = outcome_of(changed, ranks);
      test::check_same_training(found, one);
      CHECK(found.exported.size() == one.exported.size());
      if (ranks == 1) {
        CHECK(found.exported == one.exported);  // one rank sums nothing: the same bits
      }
      for (size_t i = 0; i < found.planned.size(); ++i) {
        INFO(found.planned[i].first);
        if (found.planned[i].first != "optimizer_bytes") {  // SGD has none
          CHECK(found.planned[i].second == found.measured[i].second);
        }
      }
    }
  }
}

TEST_CASE("one reduction a step where memory allows, one a micro-batch where it does not") {
  auto recipe = short_recipe();
  recipe.train.max_steps = 2;
  recipe.train.gradient_accumulation_steps = 3;
  recipe.train.global_batch_size = 12;
  const Outcome one = outcome_of(recipe, 1);
  for (const auto strategy :
       {Strategy::kFullShard, Strategy::kShardGradOp, Strategy::kHybridShard, Strategy::kNoShard}) {
    recipe.sharding.strategy = strategy;
    const Outcome two = outcome_of(recipe, 2);
    CHECK_FALSE(two.reduces_every_micro_batch);  // the tiny model fits anywhere
    test::check_same_training(two, one);
    for (size_t i = 0; i < two.planned.size(); ++i) {
      INFO(two.planned[i].first);
      CHECK(two.planned[i].second == two.measured[i].second);
    }
  }
  recipe.sharding.strategy = Strategy::kFullShard;
  std::mutex mutex;
  run_ranks(2, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const auto run = test::assemble_on(std::move(world), recipe, Strategy::kFullShard);
    const auto fits = [&](int64_t memory) {
      return train::keeps_whole_gradients(run->recipe, *run->engine, run->sharding, memory);
    };
    const auto use = run->engine->planned_memory(true);
    const int64_t needed = use.parameters + use.gradients + use.gathers;
    const bool fits_exactly = fits(2 * needed);
    const bool fits_in_less = fits(2 * needed - 2);
    const std::scoped_lock lock(mutex);
    CHECK(fits_exactly);
    CHECK_FALSE(fits_in_less);
  });
  // Ranks own different numbers of rows (500 on 3 ranks: 167, 167, 166), and still decide alike.
  recipe.optim.optim = optim::OptimizerType::kAdamW;
  recipe.train.global_batch_size = 18;
  std::set<int64_t> limits;
  run_ranks(3, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const auto run = test::assemble_on(std::move(world), recipe, Strategy::kFullShard);
    int64_t low = 0, high = int64_t{1} << 40;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (train::keeps_whole_gradients(run->recipe, *run->engine, run->sharding, middle) ? high : low) = middle;
    }
    const std::scoped_lock lock(mutex);
    limits.insert(high);
  });
  CHECK(limits.size() == 1);
}

TEST_CASE(
    "bf16 computes in bf16 and learns what fp32 learns, also where an update is below bf16's resolution") {  // A16
  auto recipe = short_recipe();
  recipe.train.max_steps = 20;
  recipe.model.dropout = 0.0;
  recipe.optim.optim = optim::OptimizerType::kAdamW;
  recipe.optim.learning_rate = 1e-6;
  auto frozen = recipe;
  frozen.optim.learning_rate = 0;
  frozen.train.max_steps = 1;
  const Outcome start = outcome_of(frozen, 1);
  const Outcome wide = outcome_of(recipe, 2);
  recipe.train.bf16 = true;
  for (const auto strategy : {Strategy::kFullShard, Strategy::kShardGradOp, Strategy::kNoShard}) {
    for (const int64_t ranks : {1, 2, 3}) {
      INFO("strategy " << static_cast<int>(strategy) << " ranks " << ranks);
      recipe.sharding.strategy = strategy;
      const Outcome narrow = outcome_of(recipe, ranks);
      for (size_t i = 0; i < wide.losses.size(); ++i) {
        CHECK(narrow.losses[i] == Approx(wide.losses[i]).epsilon(2e-2));
        CHECK(narrow.losses[i] != wide.losses[i]);
      }
      int64_t changed = 0, count = 0;
      double dot = 0, of_wide = 0, of_narrow = 0;
      for (size_t i = 0; i < wide.weights.size(); ++i) {
        const auto by_narrow = narrow.weights[i] - start.weights[i];
        const auto by_wide = wide.weights[i] - start.weights[i];
        // Rows of tokens that the data does not have never move.
        const auto moves = by_wide.ne(0);
        count += moves.sum().item<int64_t>();
        changed += at::logical_and(by_narrow.ne(0), moves).sum().item<int64_t>();
        dot += (by_narrow * by_wide).sum().item<double>();
        of_wide += (by_wide * by_wide).sum().item<double>();
        of_narrow += (by_narrow * by_narrow).sum().item<double>();
      }
      CHECK(count > 1000);
      CHECK(changed > 0.95 * static_cast<double>(count));
      CHECK(dot / std::sqrt(of_wide * of_narrow) > 0.9);
    }
  }
}

TEST_CASE("reducing in bf16 stays within bf16 of reducing in fp32") {
  auto recipe = short_recipe();
  const Outcome wide = outcome_of(recipe, 3);
  recipe.sharding.reduce_dtype = shard::ParamDtype::kBf16;
  for (const auto strategy : {Strategy::kFullShard, Strategy::kNoShard}) {
    recipe.sharding.strategy = strategy;
    const Outcome narrow = outcome_of(recipe, 3);
    for (size_t i = 0; i < wide.losses.size(); ++i) {
      CHECK(narrow.losses[i] == Approx(wide.losses[i]).epsilon(1e-2));
      CHECK(narrow.norms[i] == Approx(wide.norms[i]).epsilon(2e-2));
    }
    CHECK(test::largest_change(narrow, wide) > 1e-7);
    CHECK(test::largest_change(narrow, wide) < 1e-3);
  }
}
