// Ranks that do not run the same say so, all of them alike.
#include "train/handshake.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "support/rank_messages.h"
#include "support/run_fixture.h"

using namespace stft;
using train::Fact;

namespace {

// What all ranks say when rank r brings facts[r].
std::string refusal_of(const std::vector<std::vector<Fact>>& facts) {
  const auto messages = test::messages_of_ranks<UserError>(
      static_cast<int64_t>(facts.size()), [&](std::unique_ptr<dist::ProcessGroup> world) {
        train::agree_on_facts(*world, facts[static_cast<size_t>(world->rank())]);
      });
  for (const std::string& message : messages) {
    CHECK(message == messages.front());
  }
  return messages.front();
}

}  // namespace

TEST_CASE("equal facts pass, whatever they are") {  // T29
  const std::vector<Fact> facts = {{"version", "1"}, {"empty", ""}, {"table", "a: 1\nb: 2\n"}};
  for (const size_t ranks : {1, 2, 3}) {
    CHECK(refusal_of(std::vector<std::vector<Fact>>(ranks, facts)) == "nothing");
  }
  CHECK(refusal_of({{}, {}}) == "nothing");
}

TEST_CASE("one rank asks nobody") {
  const auto single = dist::ProcessGroup::single();
  train::agree_on_facts(*single, {{"version", "1"}});
  CHECK(single->counts().all_gathers == 0);
}

TEST_CASE("a fact that differs is named with the ranks and what they have") {  // T29
  CHECK(refusal_of({{{"version", "1"}, {"table", "x"}}, {{"version", "2"}, {"table", "x"}}}) ==
        "the ranks do not run the same:\nversion: '1' on rank 0, '2' on rank 1");
  CHECK(
      refusal_of({{{"table", "a: 1\nb: 2\nc: 3\n"}}, {{"table", "a: 1\nb: 5\n"}}, {{"table", "a: 1\nb: 2\nc: 3\n"}}}) ==
      "the ranks do not run the same:\ntable: 'b: 2' (and 1 more) on ranks 0 and 2, 'b: 5' on rank 1");
  CHECK(refusal_of({{{"table", "a: 1\n"}}, {{"table", "a: 1\nb: 2\n"}}, {{"table", ""}}, {{"table", "a: 1\n"}}}) ==
        "the ranks do not run the same:\ntable: nothing of the kind on ranks 0 and 3, 'b: 2' on rank 1"
        "\ntable: 'a: 1' on ranks 0 and 3, nothing of the kind on rank 2");
  CHECK(refusal_of({{{"table", "a\nb\nc\n"}}, {{"table", "a\nc\nb\n"}}}) ==
        "the ranks do not run the same:\ntable: 'b' (and 1 more) on rank 0, 'c' (and 1 more) on rank 1");
}

TEST_CASE("ranks that compare other facts, or more of them, are told so") {  // T29
  CHECK(
      refusal_of({{{"version", "1"}}, {{"version", "2"}, {"recipe", "x"}, {"more", "y"}}}) ==
      "the ranks do not run the same:\nwhat the ranks compare: 'version' on rank 0, 'version, recipe, more' on rank 1");
  CHECK(refusal_of({{}, {{"version", "2"}}, {}}) ==
        "the ranks do not run the same:\nwhat the ranks compare: nothing of the kind on ranks 0 and 2, 'version' on "
        "rank 1");
}

TEST_CASE("a long line is cut between characters") {
  const std::string message =
      refusal_of({{{"x", std::string(159, 'a') + "\xC3\xA9" + std::string(400, 'b')}}, {{"x", "c"}}});
  CHECK_THAT(message, Catch::Contains(std::string(159, 'a') + "...' on rank 0, 'c' on rank 1"));
}

TEST_CASE("a recipe's difference is named by its key") {  // T29
  auto other = test::tiny_recipe();
  other.loss.scale = 30;
  CHECK(refusal_of({{train::recipe_fact(test::tiny_recipe())}, {train::recipe_fact(other)}}) ==
        "the ranks do not run the same:\nrecipe: 'loss.scale: 20' on rank 0, 'loss.scale: 30' on rank 1");
}

TEST_CASE("ranks with another model, tokenizer or data do not come to a first step") {  // T29
  struct Case {
    std::function<void(recipe::Recipe&)> change;
    std::vector<std::string> expected;
  };
  const std::vector<Case> cases = {
      {[](recipe::Recipe& recipe) { recipe.data.train.front().limit = 30; },
       {"training data: 'xxh3:", "on ranks 0 and 2", "on rank 1"}},
      {[](recipe::Recipe& recipe) {
         recipe.model.dense = model::DenseConfig{24, model::DenseActivation::kTanh, true};
       },
       {"parameters: nothing of the kind on ranks 0 and 2, 'linear.weight of module 2: [24, 32]' (and 1 more) on rank "
        "1"}},
      {[](recipe::Recipe& recipe) { recipe.model.name_or_path = test::golden_path("tiny_bert_dense"); },
       {"parameters: ", "model: "}}};
  for (const Case& c : cases) {
    const auto messages = test::messages_of_ranks<UserError>(3, [&](std::unique_ptr<dist::ProcessGroup> world) {
      auto recipe = test::tiny_recipe();
      if (world->rank() == 1) {
        c.change(recipe);
      }
      test::assemble_on(std::move(world), recipe, shard::Strategy::kFullShard);
    });
    for (const std::string& message : messages) {
      CHECK(message == messages.front());
      for (const std::string& text : c.expected) {
        CHECK_THAT(message, Catch::Contains(text));
      }
    }
  }
}

TEST_CASE("ranks with another batch name it") {  // A05
  auto recipe = test::tiny_recipe();
  recipe.train.per_device_train_batch_size = 4;
  auto triplets = recipe;
  test::use_triplets(triplets, 2, 40);
  auto scored = recipe;
  test::use_scored(scored);
  const auto step_of = [](const recipe::Recipe& of) {
    const auto run = test::assemble_on(dist::ProcessGroup::single(), of, shard::Strategy::kFullShard);
    return run->loader->next().value();
  };
  const auto pairs = train::batch_fact(step_of(recipe));
  CHECK(refusal_of({{pairs}, {train::batch_fact(step_of(recipe))}}) == "nothing");
  CHECK(
      refusal_of({{pairs}, {train::batch_fact(step_of(triplets))}}) ==
      "the ranks do not run the same:\nbatch: 'micro-batch 0: 4 of 4 rows, at most 0 negatives, 0 0 0 0 a row, scores "
      "none' on rank 0, 'micro-batch 0: 4 of 4 rows, at most 2 negatives, 2 2 2 2 a row, scores none' on rank 1");
  CHECK_THAT(refusal_of({{pairs}, {train::batch_fact(step_of(scored))}}), Catch::Contains("scores none' on rank 0"));
}
