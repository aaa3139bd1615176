// Runs of CoSENTLoss, the loss of a recipe that names none.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "e2e/process.h"
#include "e2e/run_files.h"

namespace stft::test {
namespace {

using Catch::Matchers::Contains;

Json scored_recipe(const TemporaryDirectory& directory, const std::string& path) {
  Json recipe = small_recipe(directory);
  recipe.erase("loss");
  Json& set = recipe["data"]["train"][0];
  set["path"] = path;
  set["columns"] = {{"text_1", "definition"}, {"text_2", "lemmas"}, {"score", "score"}};
  return recipe;
}

RunLog run_on(int ranks, const TemporaryDirectory& directory, Json recipe) {
  recipe["run"]["output_dir"] = directory.path("run" + std::to_string(ranks));
  recipe["train"]["learning_rate"] = 0.005;
  const Outcome outcome = run_stft({"train", write_recipe(directory, recipe), "--nproc", std::to_string(ranks)});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK_THAT(outcome.err, !Contains("candidate") && !Contains("warning"));
  return read_log(directory.path("run" + std::to_string(ranks)));
}

}  // namespace

TEST_CASE("CoSENTLoss on csv trains alike at 1 and 3 ranks and counts no candidates", "[e2e][cosent]") {
  const TemporaryDirectory directory;
  const Json recipe = scored_recipe(directory, source_path("test/golden/data/scored.csv"));
  const RunLog one = run_on(1, directory, recipe);
  const RunLog three = run_on(3, directory, recipe);
  REQUIRE(one.steps.size() == 3);
  REQUIRE(one.starts.size() == 1);
  CHECK_FALSE(one.starts[0].contains("candidates_per_anchor"));
  CHECK(numbers(one.steps, "loss").at(0) > 1);
  CHECK(relative_difference(numbers(one.steps, "loss"), numbers(three.steps, "loss")) < 1e-6);
  CHECK(weight_difference(directory.path("run1/final/model.safetensors"),
                          directory.path("run3/final/model.safetensors")) < 1e-6);
  CHECK_THAT(read_bytes(directory.path("run1/recipe.resolved.yaml")), Contains("type: CoSENTLoss"));
}

TEST_CASE("a score that is no number is named by file, line and column, also on two ranks", "[e2e][cosent]") {
  const std::string good = "definition,lemmas,score\nfrozen water,ice,\"1\"\n";
  for (const std::string score : {"", "high", "nan", "inf", "\"0,5\""}) {
    for (const int ranks : {1, 2}) {
      INFO(score << " on " << ranks);
      const TemporaryDirectory directory;
      const Json recipe = scored_recipe(directory, directory.write("rows.csv", good + "a feline,cat," + score + "\n"));
      const Outcome outcome = run_stft({"train", write_recipe(directory, recipe), "--nproc", std::to_string(ranks)});
      INFO(outcome.err);
      CHECK(outcome.exit_code == 2);
      CHECK_THAT(outcome.err, Contains("rows.csv:3: column 'score' holds") && !Contains("internal error"));
    }
  }
  const TemporaryDirectory directory;
  const Json recipe = scored_recipe(directory, directory.write("rows.csv", "definition,lemmas\nfrozen water,ice\n"));
  const Outcome outcome = run_stft({"train", write_recipe(directory, recipe)});
  CHECK(outcome.exit_code == 2);
  CHECK_THAT(outcome.err, Contains("rows.csv:2: column 'score' is missing"));
}

TEST_CASE("batches of one row order nothing, which a run says", "[e2e][cosent]") {
  const TemporaryDirectory directory;
  Json recipe = scored_recipe(directory, source_path("test/golden/data/scored.csv"));
  recipe["train"]["global_batch_size"] = 1;
  const Outcome outcome = run_stft({"train", write_recipe(directory, recipe)});
  CHECK(outcome.exit_code == 0);
  CHECK_THAT(outcome.err, Contains("a batch of one row has no two rows to order, so the loss is 0"));
  CHECK(numbers(read_log(directory.path("run")).steps, "loss") == std::vector<double>{0, 0, 0});
}

}  // namespace stft::test
