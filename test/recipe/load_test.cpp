#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "recipe/recipe.h"
#include "recipe/temporary_recipe.h"

namespace stft::recipe {

namespace {

Recipe load_text(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const TemporaryRecipe file(text);
  return load(file.path(), overrides);
}

const char* const kEvaluator = R"(evaluators:
  - type: InformationRetrievalEvaluator
    name: dev
    beir: test/bad_recipes/data
    split: dev
)";

}  // namespace

TEST_CASE("keys left out have the libraries' defaults", "[recipe]") {
  const Recipe recipe = load_text(small_recipe());
  CHECK(recipe.run.seed == 42);
  CHECK(recipe.run.report_jsonl);
  CHECK(recipe.train.num_train_epochs == 3.0);
  CHECK(recipe.train.per_device_train_batch_size == 8);
  CHECK(recipe.train.logging_steps == 10);
  CHECK(recipe.train.shuffle);
  CHECK(recipe.train.eval_strategy == EvalStrategy::kNo);
  CHECK(recipe.optim.learning_rate == 5e-5);
  CHECK(recipe.optim.lr_scheduler_type == optim::ScheduleType::kLinear);
  CHECK(recipe.sharding.strategy == shard::Strategy::kFullShard);
  CHECK(recipe.loss.scale == 20.0);
  CHECK(recipe.loss.gather_across_devices);
  CHECK(recipe.checkpoint.save_strategy == checkpoint::SaveStrategy::kSteps);
  CHECK(recipe.checkpoint.save_steps == 500);
  CHECK_FALSE(recipe.launch.nproc.has_value());
  CHECK(recipe.launch.timeout_s == 1800);
  CHECK(recipe.evaluators.empty());
  REQUIRE(recipe.data.train.size() == 1);
  CHECK(recipe.data.train[0].name == "train");
  CHECK(recipe.data.train[0].key_path == "data.train");
}

TEST_CASE("without a loss it is CoSENTLoss, on text_1, text_2 and score", "[recipe]") {
  const std::string start = R"(run: {output_dir: runs/test}
model: {name_or_path: test/bad_recipes/data/model}
data:
  train:
    path: test/bad_recipes/data/scored.csv
    columns: {text_1: a, text_2: b, score: s}
    prompts: {text_1: "query: ", text_2: "passage: "}
)";
  for (const std::string loss : {"", "loss:\n", "loss: {scale: 20}\n", "loss: {type: CoSENTLoss}\n"}) {
    INFO(loss);
    const Recipe recipe = load_text(start + loss);
    CHECK(recipe.loss.type == loss::LossType::kCoSent);
    CHECK(recipe.loss.scale == 20.0);
    CHECK(recipe.data.train.at(0).columns.score == "s");
    CHECK(recipe.data.train.at(0).prompts.at("text_1") == "query: ");
  }
  CHECK(load_text(start + "loss: {type: CoSENTLoss, scale: 5}\n").loss.scale == 5.0);
}

TEST_CASE("the quickstart's keys are read", "[recipe]") {
  const Recipe recipe = load_text(small_recipe() + kEvaluator + R"(
train:
  num_train_epochs: 1
  per_device_train_batch_size: 32
  learning_rate: 2e-5
  lr_scheduler_type: constant_with_warmup
  warmup_steps: 0.1
  optim: sgd
  packing: off
  eval_strategy: steps
  eval_steps: 50
  eval_on_start: True
checkpoint: {metric_for_best_model: eval_dev_cosine_ndcg@10, state_dict_type: FULL_STATE_DICT}
sharding: {strategy: no_shard, prefetch: 0, wrap: block}
launch: {nproc: 2, backend: gloo, threads_per_rank: 1}
)");
  CHECK(recipe.optim.learning_rate == 2e-5);
  CHECK(recipe.optim.optim == optim::OptimizerType::kSgd);
  CHECK(recipe.optim.warmup_steps == 0.1);
  CHECK(recipe.train.packing == Packing::kOff);
  CHECK(recipe.train.eval_on_start);
  CHECK(recipe.sharding.strategy == shard::Strategy::kNoShard);
  CHECK(recipe.sharding.prefetch == 0);
  CHECK(recipe.launch.nproc == 2);
  REQUIRE(recipe.evaluators.size() == 1);
  CHECK(recipe.evaluators[0].queries.path == "test/bad_recipes/data/queries.jsonl");
  CHECK(recipe.evaluators[0].qrels_path == "test/bad_recipes/data/qrels.dev.tsv");
}

TEST_CASE("the metric is checked against the model's own similarity", "[recipe]") {
  const std::string text = small_recipe() + kEvaluator + "checkpoint: {metric_for_best_model: dev_dot_ndcg@10}\n";
  CHECK_THROWS_WITH(load_text(text), Catch::Contains("did you mean dev_cosine_ndcg@10?"));
  CHECK_NOTHROW(load_text(text, {"model.similarity_fn_name=dot"}));
  CHECK_NOTHROW(load_text(text, {"model.name_or_path=test/bad_recipes/data/dot_model"}));
}

TEST_CASE("a hub's model is located after the rest of the recipe is checked", "[recipe]") {
  const std::string text = small_recipe() + kEvaluator + "checkpoint: {metric_for_best_model: dev_dot_ndcg@10}\n";
  const std::vector<std::string> id = {"model.name_or_path=some-org/some.model"};
  CHECK_THROWS_WITH(load_text(text + "nonsense: 1\n", id), Catch::Contains("nonsense"));
  Recipe recipe = load_text(text, {id[0], "model.revision=v1"});
  CHECK(recipe.model.revision == "v1");
  CHECK(recipe.model.directory() == "some-org/some.model");
  // Which metrics there are depends on the model.
  const Recipe located = with_snapshot(recipe, "test/bad_recipes/data/dot_model");
  CHECK(located.model.directory() == "test/bad_recipes/data/dot_model");
  CHECK(dump(located) == dump(recipe));
  CHECK_THROWS_WITH(
      with_snapshot(recipe, "test/bad_recipes/data/model"),
      Catch::Contains("did you mean dev_cosine_ndcg@10?") && Catch::Contains(":13: checkpoint.metric_for_best_model"));
  CHECK_NOTHROW(with_snapshot(recipe, "test/bad_recipes/data/model", Purpose::kEvaluation));
  CHECK_THROWS_WITH(with_snapshot(recipe, "test/bad_recipes/data"), Catch::Contains("model.name_or_path"));
}

TEST_CASE("--set changes, adds and removes", "[recipe]") {
  const Recipe recipe = load_text(small_recipe() + "train: {max_steps: 5, eval_steps: 7}\n",
                                  {"train.max_steps=9", "train.eval_steps=", "model.prompts={query: 'q: '}",
                                   "data.train.0.limit=4", "launch.nproc=3", "model.pooling=[cls, mean]"});
  CHECK(recipe.train.max_steps == 9);
  CHECK_FALSE(recipe.train.eval_steps.has_value());
  CHECK(recipe.model.prompts.at("query") == "q: ");
  CHECK(recipe.data.train.at(0).limit == 4);
  CHECK(recipe.launch.nproc == 3);
  CHECK(recipe.model.pooling == std::vector{model::PoolingMode::kCls, model::PoolingMode::kMean});
  CHECK(where(recipe, "launch.nproc") == "--set launch.nproc=3: launch.nproc");
  CHECK(where(recipe, "train.bf16").find(":8: train.bf16") != std::string::npos);
  CHECK(where(recipe, "sharding.wrap") == "sharding.wrap");
}

TEST_CASE("--set reaches into lists", "[recipe]") {
  const std::string list = R"(run: {output_dir: runs/test}
model: {name_or_path: test/bad_recipes/data/model}
data:
  train:
    - path: test/bad_recipes/data/absent.jsonl
      columns: {anchor: anchor, positive: positive}
loss: {type: MultipleNegativesRankingLoss}
)";
  CHECK_THROWS_AS(load_text(list), UserError);
  const Recipe recipe = load_text(list, {"data.train.0.path=test/bad_recipes/data/train.csv", "evaluators=[]"});
  CHECK(recipe.data.train.at(0).paths.at(0) == "test/bad_recipes/data/train.csv");
  CHECK(recipe.data.train.at(0).key_path == "data.train.0");
  CHECK_THROWS_WITH(load_text(list, {"data.train.path=x"}),
                    Catch::Contains("--set data.train.path=x: data.train: a list of 1: expected an index from 0 to 1, "
                                    "found 'path'"));
}

TEST_CASE("--set problems name the argument", "[recipe]") {
  const auto refusal = [](const std::string& argument) {
    try {
      load_text(small_recipe(), {argument});
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal("train.learning_rate=fast") ==
        "--set train.learning_rate=fast: train.learning_rate: expected a number, found \"fast\"");
  CHECK(refusal("train.lerning_rate=1") ==
        "--set train.lerning_rate=1: train.lerning_rate: unknown key; did you mean train.learning_rate?");
  CHECK(refusal("train.max_steps") == "--set train.max_steps: expected KEY=VALUE, such as train.learning_rate=1e-5");
  CHECK(refusal("run.output_dir.x=1") == "--set run.output_dir.x=1: run.output_dir: is a single value and has no 'x'");
  CHECK_THAT(refusal("train.max_steps=[1"), Catch::StartsWith("--set train.max_steps=[1: not valid YAML:"));
  CHECK_THAT(refusal("train..max_steps=1"), Catch::Contains("empty key"));
  CHECK_THAT(refusal("checkpoint.async=true"), Catch::Contains("async saving is not available yet"));
}

TEST_CASE("a glob and a list of files", "[recipe]") {
  const std::string set =
      "data: {train: {path: [test/bad_recipes/data/tr*n.jsonl, test/bad_recipes/data/train.csv], "
      "columns: {anchor: anchor, positive: positive, negative_1: n1, negative_2: n2}}}\n";
  const Recipe recipe = load_text(
      "run: {output_dir: r}\nmodel: {name_or_path: test/bad_recipes/data/model}\nloss: {type: "
      "MultipleNegativesRankingLoss}\n" +
      set);
  CHECK(recipe.data.train.at(0).paths.size() == 2);
  CHECK(recipe.data.train.at(0).columns.numbered_negatives == std::vector<std::string>{"n1", "n2"});
}

}  // namespace stft::recipe
