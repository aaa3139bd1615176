// Settings that are honoured or refused, never ignored; and `check`, which finds what training would find.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "e2e/model_copy.h"

namespace stft::test {
namespace {

using Catch::Matchers::Contains;

// Both commands refuse, quickly, with the same words.
void check_both_refuse(const TemporaryDirectory& directory, const Json& recipe,
                       const std::vector<std::string>& expected) {
  const std::string path = write_recipe(directory, recipe);
  const Outcome checked = run_stft({"check", path});
  const Outcome trained = run_stft({"train", path});
  for (const Outcome* outcome : {&checked, &trained}) {
    INFO(outcome->err);
    CHECK(outcome->exit_code == 2);
    CHECK(outcome->seconds < 5);
    CHECK(outcome->out.empty());
    for (const std::string& text : expected) {
      CHECK_THAT(outcome->err, Contains(text));
    }
  }
  const auto last_error = [](const std::string& err) { return err.substr(err.rfind("error: ")); };
  REQUIRE_THAT(checked.err, Contains("error: "));
  CHECK_THAT(trained.err, Contains(last_error(checked.err).substr(std::string("error: ").size())));
  CHECK_FALSE(std::filesystem::exists(directory.path("run/final")));
}

RunLog train(const TemporaryDirectory& directory, const Json& recipe) {
  const Outcome outcome = run_stft({"train", write_recipe(directory, recipe), "--overwrite"});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return read_log(directory.path("run"));
}

Json triplets_recipe(const TemporaryDirectory& directory) {
  Json recipe = small_recipe(directory);
  recipe["data"]["train"][0]["path"] = source_path("test/golden/data/triplets.jsonl");
  recipe["data"]["train"][0]["columns"] = {
      {"anchor", "anchor"}, {"positive", "positive"}, {"negative_1", "negative_1"}, {"negative_2", "negative_2"}};
  return recipe;
}

}  // namespace

TEST_CASE("every role's prompt changes the loss, a numbered negative's too", "[e2e][review]") {
  const TemporaryDirectory directory;
  Json recipe = triplets_recipe(directory);
  std::vector<double> losses = {train(directory, recipe).steps.at(0).at("loss")};
  for (const char* role : {"anchor", "positive", "negative_1", "negative_2"}) {
    INFO(role);
    recipe["data"]["train"][0]["prompts"] = {{role, "small flowers from the united states of america: "}};
    const double loss = train(directory, recipe).steps.at(0).at("loss");
    for (const double other : losses) {
      CHECK(std::abs(loss - other) > 1e-4);
    }
    losses.push_back(loss);
  }
}

TEST_CASE("a prompt that is the name of one of the model's prompts is that prompt", "[e2e][review]") {
  const TemporaryDirectory directory;
  Json recipe = triplets_recipe(directory);
  recipe["data"]["train"][0]["prompts"] = {{"negative_1", "in the north: "}};
  const std::vector<double> literal = numbers(train(directory, recipe).steps, "loss");
  recipe["model"]["prompts"] = {{"place", "in the north: "}};
  recipe["data"]["train"][0]["prompts"] = {{"negative_1", "place"}};
  CHECK(numbers(train(directory, recipe).steps, "loss") == literal);
  CHECK(read_json(directory.path("run/final/config_sentence_transformers.json")).at("prompts").at("place") ==
        "in the north: ");
}

TEST_CASE("the model's own similarity is used and overridden", "[e2e][review]") {
  const ModelCopy model;
  Json recipe = model.recipe();
  recipe["evaluators"] = Json::array({beir_evaluator()});
  recipe["train"]["eval_strategy"] = "steps";
  const auto set_similarity = [&](const char* name) {
    model.damage_json("config_sentence_transformers.json", [&](Json& j) { j["similarity_fn_name"] = name; });
  };
  set_similarity("dot");
  CHECK(train(model.directory(), recipe).evals.at(0).at("metrics").contains("beir_dot_ndcg@10"));

  for (const char* name : {"euclidean", "manhattan"}) {
    set_similarity(name);
    const TemporaryDirectory own;
    recipe["run"]["output_dir"] = own.path("run");
    CHECK(train(own, recipe).evals.at(0).at("metrics").contains(std::string("beir_") + name + "_ndcg@10"));
    const TemporaryDirectory elsewhere;
    recipe["run"]["output_dir"] = elsewhere.path("run");
    recipe["model"]["similarity_fn_name"] = "dot";
    const RunLog log = train(elsewhere, recipe);
    CHECK(log.evals.at(0).at("metrics").contains("beir_dot_ndcg@10"));
    CHECK(read_json(elsewhere.path("run/final/config_sentence_transformers.json")).at("similarity_fn_name") == "dot");
    recipe["model"].erase("similarity_fn_name");
  }
}

TEST_CASE("pair scores and the evaluation loss: in the log, in a CSV, nothing where there is no correlation", "[e2e]") {
  const TemporaryDirectory directory;
  Json recipe = small_recipe(directory);
  const Json columns = {{"sentence1", "a"}, {"sentence2", "b"}, {"score", "score"}};
  const std::string flat = directory.write("flat.csv", "a,b,score\nred,blue,1\nbig,small,1\n");
  recipe["evaluators"] = Json::array({{{"type", "EmbeddingSimilarityEvaluator"},
                                       {"name", "sts"},
                                       {"path", source_path("test/golden/data/scored_pairs.jsonl")},
                                       {"columns", columns}},
                                      {{"type", "EmbeddingSimilarityEvaluator"},
                                       {"name", "flat"},
                                       {"path", flat},
                                       {"columns", columns},
                                       {"write_csv", false}}});
  recipe["data"]["eval"] = recipe["data"]["train"];
  recipe["train"]["eval_strategy"] = "steps";
  recipe["train"]["eval_on_start"] = true;
  const RunLog log = train(directory, recipe);
  const Json& metrics = log.evals.at(0).at("metrics");
  CHECK(metrics.at("sts_spearman_cosine").get<double>() == Approx(-0.0536575163).margin(1e-6));
  CHECK(metrics.at("flat_spearman_cosine").is_null());
  CHECK(metrics.at("eval_loss") == metrics.at("eval_pairs_loss"));
  CHECK(log.evals.back().at("metrics").at("eval_loss").get<double>() < metrics.at("eval_loss").get<double>());
  const std::string csv = read_bytes(directory.path("run/eval/similarity_evaluation_sts_results.csv"));
  CHECK(csv.starts_with("epoch,steps,cosine_pearson,cosine_spearman\n0,0,"));
  CHECK(std::count(csv.begin(), csv.end(), '\n') == static_cast<int64_t>(1 + log.evals.size()));
  CHECK_FALSE(std::filesystem::exists(directory.path("run/eval/similarity_evaluation_flat_results.csv")));
}

TEST_CASE("numbers that no run can mean are refused with the key", "[e2e][review]") {
  const TemporaryDirectory directory;
  struct Case {
    std::string key;
    std::string value;
  };
  for (const Case& c : std::vector<Case>{{"train.num_train_epochs", "1e30"},
                                         {"train.logging_steps", "1e300"},
                                         {"train.warmup_steps", "1e300"},
                                         {"train.eval_steps", "1e300"},
                                         {"train.max_steps", "9223372036854775807"},
                                         {"train.gradient_accumulation_steps", "9223372036854775807"},
                                         {"train.per_device_train_batch_size", "9223372036854775807"},
                                         {"train.per_device_eval_batch_size", "9223372036854775807"},
                                         {"train.global_batch_size", "9223372036854775806"},
                                         {"model.max_seq_length", "9223372036854775807"},
                                         {"model.dense.out_features", "2000000000"},
                                         {"model.dense.out_features", "65537"},
                                         {"launch.timeout_s", "0.0005"},
                                         {"launch.timeout_s", "1e300"},
                                         {"launch.threads_per_rank", "2000000000"}}) {
    INFO(c.key << "=" << c.value);
    Json recipe = small_recipe(directory);
    if (c.key == "train.per_device_train_batch_size") {
      recipe["train"].erase("global_batch_size");
    }
    const Outcome outcome = run_stft({"train", write_recipe(directory, recipe), "--set", c.key + "=" + c.value});
    INFO(outcome.err);
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.seconds < 5);
    CHECK_THAT(outcome.err, Contains(c.key));
    CHECK_FALSE(std::filesystem::exists(directory.path("run/final")));
  }
}

TEST_CASE("an evaluator's name that is no file name is refused", "[e2e][review]") {
  const TemporaryDirectory directory;
  Json recipe = small_recipe(directory);
  Json evaluator = beir_evaluator();
  evaluator["name"] = "beir/scifact";
  recipe["evaluators"] = Json::array({evaluator});
  check_both_refuse(directory, recipe, {"evaluators.0.name", "beir/scifact"});
}

TEST_CASE("debug_collectives tells what the collectives of every step cost", "[e2e][review]") {
  const TemporaryDirectory directory;
  Json recipe = small_recipe(directory);
  recipe["run"]["debug_collectives"] = true;
  const Outcome outcome = run_stft({"train", write_recipe(directory, recipe), "--nproc", "2"});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  const RunLog log = read_log(directory.path("run"));
  REQUIRE(log.collectives.size() == 3);
  CHECK(log.collectives.back().at("step") == 3);
  CHECK(log.collectives.back().at("all_gathers") > 0);
  CHECK_THAT(outcome.err, Contains("step 3: ") && Contains("reduce-scatters") && Contains("bytes"));
}

TEST_CASE("report_to [] writes no log, but the run is the same", "[e2e][review]") {
  const TemporaryDirectory directory;
  Json recipe = small_recipe(directory);
  recipe["run"]["report_to"] = Json::array();
  recipe["evaluators"] = Json::array({beir_evaluator()});
  recipe["train"]["eval_strategy"] = "steps";
  const Outcome outcome = run_stft({"train", write_recipe(directory, recipe), "--nproc", "2"});
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK_FALSE(std::filesystem::exists(directory.path("run/log.jsonl")));
  CHECK(std::filesystem::exists(directory.path("run/final/model.safetensors")));
  CHECK(std::filesystem::exists(directory.path("run/recipe.resolved.yaml")));
  CHECK_THAT(read_bytes(directory.path("run/recipe.resolved.yaml")), Contains("report_to: []"));
  CHECK_THAT(outcome.err, Contains("step 3/3") && Contains("beir"));
}

TEST_CASE("eval_on_start evaluates before training, whatever the strategy", "[e2e][review]") {
  const TemporaryDirectory directory;
  Json recipe = small_recipe(directory);
  recipe["evaluators"] = Json::array({beir_evaluator()});
  recipe["train"]["eval_on_start"] = true;
  CHECK(numbers(train(directory, recipe).evals, "step") == std::vector<double>{0});
  recipe["train"]["eval_on_start"] = false;
  CHECK(train(directory, recipe).evals.empty());
}

TEST_CASE("check finds in the files what training would find", "[e2e][review]") {
  const ModelCopy model;
  Json recipe = model.recipe();
  const TemporaryDirectory& directory = model.directory();
  SECTION("a line that is no JSON") {
    recipe = with_rows(recipe, directory, "{\"anchor\": \"a\", \"positive\": \"b\"}\nnot JSON\n");
    check_both_refuse(directory, recipe, {"rows.jsonl:2"});
  }
  SECTION("a mapped column that is missing") {
    recipe = with_rows(recipe, directory, "{\"anchor\": \"a\", \"positiv\": \"b\"}\n");
    check_both_refuse(directory, recipe, {"rows.jsonl:1", "'positive'"});
  }
  SECTION("an evaluator's file") {
    Json evaluator = beir_evaluator();
    evaluator["queries"]["path"] = directory.write("queries.jsonl", "{\"_id\": \"q1\"}\n");
    recipe["evaluators"] = Json::array({evaluator});
    check_both_refuse(directory, recipe, {"queries.jsonl:1"});
  }
  SECTION("a broken tokenizer") {
    model.write("tokenizer.json", "{\"model\": ");
    check_both_refuse(directory, recipe, {"tokenizer.json"});
  }
  SECTION("an impossible configuration") {
    model.damage_json("config.json", [](Json& j) { j["num_attention_heads"] = 5; });
    check_both_refuse(directory, recipe, {"config.json", "num_attention_heads"});
  }
  SECTION("a missing tensor") {
    model.damage_weights([](Weights& w) { remove_tensor(w, "encoder.layer.1.output.dense.bias"); });
    check_both_refuse(directory, recipe, {"model.safetensors", "encoder.layer.1.output.dense.bias"});
  }
  SECTION("fewer rows than a batch with drop_last") {
    recipe["data"]["train"][0]["limit"] = 5;
    recipe["train"]["dataloader_drop_last"] = true;
    check_both_refuse(directory, recipe, {"dataloader_drop_last", "5 rows"});
  }
}

TEST_CASE("check of a good recipe prints the resolved recipe and writes nothing", "[e2e][review]") {
  const ModelCopy model;
  Json recipe = model.recipe();
  recipe["evaluators"] = Json::array({beir_evaluator()});
  const Outcome outcome = run_stft({"check", write_recipe(model.directory(), recipe)});
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK_THAT(outcome.out, Catch::Matchers::StartsWith("run:\n") && Contains("global_batch_size: 12"));
  CHECK_FALSE(std::filesystem::exists(model.directory().path("run")));
}

TEST_CASE("every recipe in configs/ is good, up to files that have to be fetched", "[e2e][review]") {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("configs"))) {
    const Outcome outcome = run_stft({"check", entry.path().string()});
    INFO(outcome.err);
    count += 1;
    if (outcome.exit_code == 0) {
      CHECK(!outcome.out.empty());
      continue;
    }
    CHECK(outcome.exit_code == 2);
    std::istringstream lines(outcome.err);
    for (std::string line; std::getline(lines, line);) {
      CHECK_THAT(line, Contains("no such file") || Contains("no such directory") || Contains("no file matches"));
    }
  }
  CHECK(count >= 2);
}

}  // namespace stft::test
