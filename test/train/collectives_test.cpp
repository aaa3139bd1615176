// run.debug_collectives: what the log says of a step's collectives is what the step issued.
#include <catch2/catch.hpp>

#include "io/temporary_directory.h"
#include "train/checkpoint_run.h"

using namespace stft;

namespace {

recipe::Recipe recipe_into(const std::string& output_dir) {
  auto recipe = test::tiny_recipe();
  recipe.run.output_dir = output_dir;
  recipe.run.debug_collectives = true;
  recipe.train.global_batch_size = 12;
  recipe.checkpoint.save_strategy = checkpoint::SaveStrategy::kNo;
  return recipe;
}

// Of the steps on rank 0, counted around the step alone.
std::vector<dist::CollectiveCounts> counted(const recipe::Recipe& recipe, const test::RunOptions& options) {
  std::vector<dist::CollectiveCounts> counts;
  test::run_ranks(options.ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const bool is_first = world->rank() == 0;
    const auto run = test::assemble_on(std::move(world), recipe, options.strategy);
    auto runner = test::runner_of(*run, options.strategy == shard::Strategy::kFullShard);
    while (const auto step = run->loader->next()) {
      const dist::CollectiveCounts before = run->mesh->world().counts();
      runner.run(*step, 1.0);
      if (is_first) {
        counts.push_back(run->mesh->world().counts() - before);
      }
    }
  });
  return counts;
}

}  // namespace

TEST_CASE("the log has the collectives of every step") {
  for (const auto strategy : {shard::Strategy::kFullShard, shard::Strategy::kNoShard}) {
    const test::TemporaryDirectory directory;
    const auto recipe = recipe_into(directory.path("run"));
    const test::RunOptions options = {2, strategy};
    CHECK(test::train_run(recipe, options) == train::Outcome::kDone);
    const auto events = test::log_events(recipe.run.output_dir, "collectives");
    const auto expected = counted(recipe, options);
    REQUIRE(events.size() == 3);
    REQUIRE(expected.size() == 3);
    for (size_t i = 0; i < events.size(); ++i) {
      CHECK(events[i]["step"] == i + 1);
      CHECK(events[i]["all_gathers"] == expected[i].all_gathers);
      CHECK(events[i]["reduce_scatters"] == expected[i].reduce_scatters);
      CHECK(events[i]["all_reduces"] == expected[i].all_reduces);
      CHECK(events[i]["bytes"] == expected[i].bytes);
    }
  }
}

TEST_CASE("without shards a step gathers the embeddings and reduces the gradients, loss and norm") {
  const test::TemporaryDirectory directory;
  const auto recipe = recipe_into(directory.path("run"));
  int64_t parameters = 0;
  {
    const auto run = test::assemble_on(dist::ProcessGroup::single(), recipe, shard::Strategy::kNoShard);
    for (const auto& parameter : run->model->parameters()) {
      parameters += parameter.numel();
    }
  }
  test::train_run(recipe, {2, shard::Strategy::kNoShard});
  const auto event = test::log_events(recipe.run.output_dir, "collectives").front();
  CHECK(event["all_gathers"] == 1);
  CHECK(event["reduce_scatters"] == 1);
  CHECK(event["all_reduces"] >= 2);
  // 12 candidates of 32 floats forth and back; every gradient; loss, norm, tokens and stop requests as doubles.
  CHECK(event["bytes"] == 2 * 12 * 32 * 4 + parameters * 4 + 4 * 8);
}

TEST_CASE("one rank communicates nothing") {
  const test::TemporaryDirectory directory;
  const auto recipe = recipe_into(directory.path("run"));
  test::train_run(recipe, {1, shard::Strategy::kFullShard});
  const auto events = test::log_events(recipe.run.output_dir, "collectives");
  REQUIRE(events.size() == 3);
  CHECK(events[2]["all_gathers"] == 0);
  CHECK(events[2]["all_reduces"] == 0);
  CHECK(events[2]["bytes"] == 0);
}
