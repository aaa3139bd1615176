// A rank that fails in the middle of a step: the others end too, soon, and say that a collective failed.
#include <catch2/catch.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "support/rank_messages.h"
#include "support/run_fixture.h"

using namespace stft;

namespace {

enum class Place { kBeforeForward, kBeforeReduction };

// Two steps; in the second the last rank throws. What the ranks say that end with a CollectiveError.
std::vector<std::string> messages_when_one_fails(int64_t ranks, shard::Strategy strategy, Place place) {
  return test::messages_of_ranks<CollectiveError>(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const bool fails = world->rank() + 1 == world->size();
    auto recipe = test::tiny_recipe();
    recipe.train.global_batch_size = 12;
    try {
      const auto run = test::assemble_on(std::move(world), recipe, strategy);
      auto runner = test::runner_of(*run);
      runner.run(run->loader->next().value(), 1.0);
      const auto step = run->loader->next().value();
      if (fails && place == Place::kBeforeForward) {
        throw std::runtime_error("this rank's own failure");
      }
      runner.run(step, 1.0, [&]() -> bool {
        if (fails) {
          throw std::runtime_error("this rank's own failure");
        }
        return false;
      });
    } catch (const std::runtime_error& error) {
      if (!fails) {
        throw;
      }
    }
  });
}

}  // namespace

TEST_CASE("when one rank fails within a step, the others end with a CollectiveError within seconds") {  // T28
  for (const auto place : {Place::kBeforeForward, Place::kBeforeReduction}) {
    for (const auto strategy : {shard::Strategy::kFullShard, shard::Strategy::kNoShard}) {
      for (const int64_t ranks : {2, 3}) {
        const double start = monotonic_seconds();
        const auto messages = messages_when_one_fails(ranks, strategy, place);
        CHECK(monotonic_seconds() - start < 10);  // the timeout of a collective is 30
        for (size_t rank = 0; rank + 1 < messages.size(); ++rank) {
          CHECK_THAT(messages[rank], Catch::Contains("failed on rank"));
        }
        CHECK(messages.back() == "nothing");
      }
    }
  }
}
