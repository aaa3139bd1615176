// Failures that users of other trainers reported, by the ids of the field reports: none of them may happen here.
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "e2e/process.h"
#include "e2e/run_files.h"

namespace stft::test {
namespace {

using Catch::Matchers::Contains;

struct Row {
  std::string anchor;
  std::string positive;
};

const std::vector<Row> kRows = {{"a domestic animal that barks", "dog, domestic dog"},
                                {"a domestic animal that purrs", "cat, house cat"},
                                {"the star that the earth goes round", "sun, the sun"},
                                {"frozen water", "ice"},
                                {"a large body of salt water", "ocean, sea"},
                                {"the season after winter", "spring, springtime"},
                                {"a building for worship", "church, church building"},
                                {"a person who writes books", "author, writer"},
                                {"a tool for driving nails", "hammer"},
                                {"the day after today", "tomorrow"},
                                {"a vehicle with two wheels and pedals", "bicycle, bike"},
                                {"a sweet food made by bees", "honey"}};

std::string jsonl(const std::vector<Row>& rows) {
  std::string lines;
  for (const Row& row : rows) {
    lines += "{\"anchor\": " + Json(row.anchor).dump() + ", \"positive\": " + Json(row.positive).dump() + "}\n";
  }
  return lines;
}

struct Trained {
  RunLog log;
  std::string err;
};

Trained train(const TemporaryDirectory& directory, const Json& recipe, int ranks) {
  const Outcome outcome =
      run_stft({"train", write_recipe(directory, recipe), "--nproc", std::to_string(ranks), "--overwrite"});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return {read_log(directory.path("run")), outcome.err};
}

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("A01: columns are bound by name, in any order, and others are ignored and named once", "[e2e][field]") {
  const TemporaryDirectory directory;
  const Json recipe = small_recipe(directory);
  std::string swapped;
  std::string extended;
  for (size_t i = 0; i < kRows.size(); ++i) {
    const std::string anchor = "\"anchor\": " + Json(kRows[i].anchor).dump();
    const std::string positive = "\"positive\": " + Json(kRows[i].positive).dump();
    swapped += "{" + positive + ", " + anchor + "}\n";
    extended += "{\"row_id\": \"row " + std::to_string(i) + "\", " + anchor + ", " + positive + "}\n";
  }
  const Trained expected = train(directory, with_rows(recipe, directory, jsonl(kRows)), 2);
  CHECK_THAT(expected.err, !Contains("ignored"));
  const Trained in_other_order = train(directory, with_rows(recipe, directory, swapped), 2);
  const Trained with_more = train(directory, with_rows(recipe, directory, extended), 2);
  const std::vector<double> losses = numbers(expected.log.steps, "loss");
  REQUIRE(losses.size() == 3);
  CHECK(losses == numbers(in_other_order.log.steps, "loss"));
  CHECK(losses == numbers(with_more.log.steps, "loss"));
  CHECK(occurrences(with_more.err, "row_id") == 1);

  // The roles are what the recipe says: exchanged, they make another loss.
  Json exchanged = with_rows(recipe, directory, jsonl(kRows));
  exchanged["data"]["train"][0]["columns"] = {{"anchor", "positive"}, {"positive", "anchor"}};
  CHECK(losses != numbers(train(directory, exchanged, 2).log.steps, "loss"));
}

TEST_CASE("A03: empty and blank texts train with finite numbers", "[e2e][field]") {
  const TemporaryDirectory directory;
  std::vector<Row> rows = kRows;
  rows[0].anchor = "";
  rows[1].positive = "   ";
  rows[2] = {"", ""};
  Json recipe = with_rows(small_recipe(directory), directory, jsonl(rows));
  recipe["train"]["eval_strategy"] = "steps";
  recipe["train"]["eval_steps"] = 1;
  recipe["evaluators"] = Json::array({beir_evaluator()});
  for (const char* pooling : {"mean", "cls", "max"}) {
    for (const int ranks : {1, 2}) {
      INFO(pooling << ", " << ranks << " ranks");
      recipe["model"]["pooling"] = pooling;
      const Trained trained = train(directory, recipe, ranks);
      REQUIRE(trained.log.steps.size() == 3);
      for (const Json& step : trained.log.steps) {
        CHECK(step.at("loss").is_number());  // NaN and infinity would be null, or no JSON
        CHECK(step.at("grad_norm").get<double>() > 0);
      }
      const std::string output = directory.path("run") + "/final/model.safetensors";
      CHECK(weight_difference(source_path("test/golden/tiny_bert/model.safetensors"), output) < 1);
    }
  }
}

TEST_CASE("A03: an empty query and an empty document are scored", "[e2e][field]") {
  const TemporaryDirectory directory;
  Json recipe = small_recipe(directory);
  recipe["train"]["eval_strategy"] = "steps";
  recipe["train"]["eval_on_start"] = true;
  recipe["evaluators"] = Json::array({beir_evaluator()});
  recipe["evaluators"][0]["queries"]["path"] =
      directory.write("queries.jsonl", "{\"_id\": \"q1\", \"text\": \"\"}\n{\"_id\": \"q2\", \"text\": \"ice\"}\n");
  recipe["evaluators"][0]["corpus"]["path"] = directory.write(
      "corpus.jsonl", "{\"_id\": \"d1\", \"text\": \"  \"}\n{\"_id\": \"d2\", \"text\": \"frozen water\"}\n");
  recipe["evaluators"][0]["qrels"]["path"] =
      directory.write("qrels.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t1\n");
  const Trained trained = train(directory, recipe, 2);
  REQUIRE(trained.log.evals.size() == 4);  // at the start and, as logging_steps, after each of three steps
  CHECK(trained.log.evals[0].at("metrics").at("beir_cosine_recall@3") == 1);
}

TEST_CASE("A04: fewer rows than a batch with drop_last is a mistake that says why", "[e2e][field]") {
  const TemporaryDirectory directory;
  Json recipe = with_rows(small_recipe(directory), directory, jsonl({kRows.begin(), kRows.begin() + 3}));
  recipe["train"].erase("global_batch_size");
  recipe["train"]["per_device_train_batch_size"] = 2;
  recipe["train"]["dataloader_drop_last"] = true;
  const Outcome refused = run_stft({"train", write_recipe(directory, recipe), "--nproc", "2"});
  INFO(refused.err);
  CHECK(refused.exit_code == 2);
  CHECK(refused.seconds < 5);
  CHECK_THAT(refused.err, Contains("3 rows") && Contains("2 ranks") && Contains("per_device_train_batch_size 2") &&
                              Contains("dataloader_drop_last"));
  CHECK_FALSE(std::filesystem::exists(directory.path("run") + "/final"));

  recipe["train"]["dataloader_drop_last"] = false;
  const Trained trained = train(directory, recipe, 2);
  CHECK(trained.log.steps.size() == 3);
  CHECK(trained.log.steps[0].at("loss").get<double>() > 0);
}

TEST_CASE("A23: evaluation before, during and after training with sharded weights", "[e2e][field]") {
  const TemporaryDirectory directory;
  Json recipe = small_recipe(directory);
  recipe["train"]["max_steps"] = 5;
  recipe["train"]["eval_strategy"] = "steps";
  recipe["train"]["eval_steps"] = 2;
  recipe["train"]["eval_on_start"] = true;
  recipe["evaluators"] = Json::array({beir_evaluator()});
  recipe["sharding"]["strategy"] = "full_shard";
  const Trained one = train(directory, recipe, 1);
  const Trained two = train(directory, recipe, 2);
  const std::vector<double> steps = {0, 2, 4, 5};
  REQUIRE(numbers(one.log.evals, "step") == steps);
  REQUIRE(numbers(two.log.evals, "step") == steps);
  for (size_t i = 0; i < steps.size(); ++i) {
    INFO("step " << steps[i]);
    const Json& a = one.log.evals[i].at("metrics");
    const Json& b = two.log.evals[i].at("metrics");
    REQUIRE(a.size() == b.size());
    for (const auto& metric : a.items()) {
      INFO(metric.key());
      CHECK(std::abs(metric.value().get<double>() - b.at(metric.key()).get<double>()) <= 1e-6);
    }
  }
  CHECK(one.log.evals.front().at("metrics") != one.log.evals.back().at("metrics"));
}

TEST_CASE("A25: a metric that no evaluator has is refused before training, with the names", "[e2e][field]") {
  const TemporaryDirectory directory;
  Json recipe = small_recipe(directory);
  recipe["train"]["eval_strategy"] = "steps";
  recipe["evaluators"] = Json::array({beir_evaluator()});
  recipe["checkpoint"] = {{"metric_for_best_model", "eval_ndcg10"}};
  for (const char* command : {"train", "check"}) {
    const Outcome outcome = run_stft({command, write_recipe(directory, recipe)});
    INFO(outcome.err);
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.seconds < 5);
    CHECK_THAT(outcome.err, Contains("checkpoint.metric_for_best_model") && Contains("eval_ndcg10") &&
                                Contains("beir_cosine_ndcg@10") && Contains("beir_cosine_map@100"));
    CHECK_FALSE(std::filesystem::exists(directory.path("run")));
  }
}

}  // namespace stft::test
