#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "recipe/overrides.h"
#include "recipe/recipe.h"
#include "recipe/sections.h"
#include "recipe/temporary_recipe.h"
#include "recipe/yaml_writer.h"

namespace stft::recipe {

namespace {

// Reads without the checks that need files or features.
Recipe read_back(const std::string& text) {
  Diagnostics diagnostics("r.yaml");
  YamlNode root = parse_yaml(text, Source{"r.yaml", 1}, diagnostics);
  expand_environment(root, diagnostics);
  Recipe recipe = read_recipe(root, diagnostics);
  diagnostics.throw_if_any();
  return recipe;
}

model::ModelConfig unusual_model() {
  model::ModelConfig model;
  model.name_or_path = "dir with: colon # and hash";
  model.revision = "no";
  model.max_seq_length = 128;
  model.pooling = {model::PoolingMode::kMax, model::PoolingMode::kLastToken};
  model.include_prompt = false;
  model.normalize = true;
  model.dense = model::DenseConfig{256, model::DenseActivation::kIdentity, false};
  model.dropout = 0.1;
  model.prompts = {
      {"query", "query: "}, {"a\"b\\", "line\nbreak\ttab \xc3\xa9 ${HOME} \x01"}, {"e", ""}, {"n", "null"}};
  model.truncate_dim = 64;
  model.similarity_fn_name = model::Similarity::kManhattan;
  model.attention = model::AttentionKind::kFlashVarlen;
  model.causal = false;
  return model;
}

data::DatasetConfig unusual_set() {
  data::DatasetConfig set;
  set.name = "7";
  set.paths = {"a, b.jsonl", "*.csv"};
  set.columns = {"true", "p", "n", {"n1", "n2"}, "t1", "t2", "l", "s"};
  set.prompts = {{"anchor", "- x"}};
  set.weight = 0.5;
  set.limit = 10;
  set.streaming = true;
  set.shuffle_buffer = 5;
  return set;
}

eval::EvaluatorConfig pairs_evaluator() {
  eval::EvaluatorConfig evaluator;
  evaluator.type = eval::EvaluatorType::kEmbeddingSimilarity;
  evaluator.name = "sts";
  evaluator.pairs = {"p.tsv", "one", "two", "gold"};
  return evaluator;
}

eval::EvaluatorConfig unusual_evaluator() {
  eval::EvaluatorConfig evaluator;
  evaluator.name = "a b";
  evaluator.batch_size = 3;
  evaluator.similarity_fn_names = {model::Similarity::kDot, model::Similarity::kEuclidean};
  evaluator.truncate_dim = 16;
  evaluator.precision = eval::Precision::kUbinary;
  evaluator.write_csv = false;
  evaluator.queries = {"q.jsonl", "qid", "question"};
  evaluator.corpus = {"c.jsonl", "", ""};
  evaluator.qrels_path = "q.tsv";
  evaluator.graded = true;
  evaluator.exclude_identical_ids = true;
  return evaluator;
}

peft::AdapterConfig unusual_adapter() {
  peft::AdapterConfig adapter;
  adapter.type = peft::AdapterType::kQlora;
  adapter.r = 4;
  adapter.lora_alpha = 32.5;
  adapter.lora_dropout = 0.05;
  adapter.target_modules = {".*\\.(query|key)"};
  adapter.exclude_modules = {"x"};
  adapter.modules_to_save = {"y"};
  adapter.rank_pattern = {{"layer.0", 8}};
  adapter.alpha_pattern = {{"layer.1", 0.5}};
  adapter.layers_to_transform = std::vector<int64_t>{0, 2};
  adapter.use_rslora = adapter.use_dora = adapter.lora_bias = true;
  adapter.bias = peft::LoraBias::kLoraOnly;
  adapter.init_lora_weights = peft::LoraInit::kPissa;
  adapter.dtype = quant::WeightDtype::kBf16;
  adapter.path = "adapters/x";
  return adapter;
}

TrainConfig unusual_train() {
  TrainConfig train;
  train.num_train_epochs = 1.5;
  train.max_steps = 77;
  train.per_device_train_batch_size = 3;
  train.global_batch_size = 12;
  train.per_device_eval_batch_size = 5;
  train.gradient_accumulation_steps = 2;
  train.bf16 = train.gradient_checkpointing = train.dataloader_drop_last = train.eval_on_start = true;
  train.packing = Packing::kOn;
  train.shuffle = false;
  train.on_nonfinite = OnNonfinite::kSkip;
  train.batch_sampler = BatchSampler::kGroupByLabel;
  train.multi_dataset_batch_sampler = MultiDatasetBatchSampler::kRoundRobin;
  train.logging_steps = 0.25;
  train.eval_strategy = EvalStrategy::kEpoch;
  train.eval_steps = 3;
  train.early_stopping_patience = 2;
  train.early_stopping_threshold = 1e-3;
  return train;
}

optim::OptimConfig unusual_optim() {
  optim::OptimConfig optim;
  optim.optim = optim::OptimizerType::kAdamW8bit;
  optim.learning_rate = 1.0 / 3.0;
  optim.learning_rate_mapping = {{"z.*", 1e-300}, {"a", 2e-5}};
  optim.weight_decay = 0.01;
  optim.adam_beta1 = 0.8;
  optim.adam_beta2 = 0.99;
  optim.adam_epsilon = 1e-6;
  optim.max_grad_norm = 0.0;
  optim.lr_scheduler_type = optim::ScheduleType::kInverseSqrt;
  optim.warmup_steps = 0.1;
  return optim;
}

// Differs from the defaults in every field.
Recipe unusual_recipe() {
  Recipe recipe;
  recipe.run = {"out dir", 7, {Reporter::kCsv, Reporter::kHtml}, false, true};
  recipe.model = unusual_model();
  recipe.adapter = unusual_adapter();
  recipe.quantization = quant::QuantizationConfig{quant::QuantType::kNf4, true, quant::WeightDtype::kBf16, 128};
  recipe.sharding.strategy = shard::Strategy::kHybridShard;
  recipe.sharding.reshard_after_forward_size = 2;
  recipe.sharding.hybrid_shard_size = 4;
  recipe.sharding.cpu_offload = true;
  recipe.sharding.prefetch = 3;
  recipe.sharding.param_dtype = shard::ParamDtype::kBf16;
  recipe.sharding.reduce_dtype = shard::ParamDtype::kFp16;
  recipe.sharding.wrap = shard::WrapKind::kModules;
  recipe.sharding.wrap_modules = {"attention", "output"};
  recipe.data.train = {unusual_set(), unusual_set()};
  recipe.data.eval = {unusual_set()};
  recipe.loss.type = loss::LossType::kMultipleNegativesRanking;
  recipe.loss.scale = 1.0;
  recipe.loss.similarity_fct = loss::SimilarityFunction::kDotScore;
  recipe.loss.directions = {loss::Direction::kQueryToDoc, loss::Direction::kDocToQuery};
  recipe.loss.partition_mode = loss::PartitionMode::kPerDirection;
  recipe.loss.hardness_mode = loss::HardnessMode::kHardNegatives;
  recipe.loss.hardness_strength = 2.0;
  recipe.loss.gather_across_devices = false;
  recipe.loss.mask_duplicates = true;
  recipe.loss.matryoshka = loss::MatryoshkaConfig{{64, 32}, {1.0, 0.5}};
  recipe.loss.guide = "guide model";
  recipe.loss.teacher = "on";
  recipe.evaluators = {unusual_evaluator(), pairs_evaluator()};
  recipe.train = unusual_train();
  recipe.optim = unusual_optim();
  recipe.checkpoint = {checkpoint::StateDictType::kFull,
                       checkpoint::SaveStrategy::kBest,
                       25,
                       3,
                       true,
                       false,
                       true,
                       "eval_x",
                       false,
                       true};
  recipe.launch = {3, dist::BackendKind::kNccl, 12.5, 4};
  return recipe;
}

}  // namespace

TEST_CASE("every field survives dump and reading back", "[recipe]") {
  const Recipe recipe = unusual_recipe();
  const std::string text = dump(recipe);
  const Recipe back = read_back(text);
  CHECK(dump(back) == text);
  CHECK(back.model.name_or_path == recipe.model.name_or_path);
  CHECK(back.model.revision == "no");
  CHECK(back.model.prompts == recipe.model.prompts);
  CHECK(back.optim.learning_rate == recipe.optim.learning_rate);
  CHECK(back.optim.learning_rate_mapping == recipe.optim.learning_rate_mapping);
  CHECK(back.adapter.value().target_modules == recipe.adapter.value().target_modules);
  CHECK_FALSE(back.adapter.value().target_modules_is_list);
  CHECK(back.data.train.at(1).name == "7");
  CHECK(back.data.train.at(1).columns.anchor == "true");
  CHECK(back.data.train.at(1).paths == recipe.data.train.at(1).paths);
  CHECK(back.run.report_jsonl == false);
}

// Each line of the dump that holds a value differs from the default's: no field is dumped as a constant.
TEST_CASE("every key that a block has is dumped", "[recipe]") {
  Diagnostics diagnostics("r.yaml");
  const YamlNode unusual = parse_yaml(dump(unusual_recipe()), Source{"r.yaml", 1}, diagnostics);
  Recipe plain;
  plain.loss.type = loss::LossType::kMultipleNegativesRanking;  // the loss with the most options
  plain.adapter.emplace();
  plain.quantization.emplace();
  const YamlNode defaults = parse_yaml(dump(plain), Source{"r.yaml", 1}, diagnostics);
  for (const std::string block :
       {"run", "model", "adapter", "quantization", "sharding", "loss", "train", "checkpoint", "launch"}) {
    const YamlNode& changed = *unusual.find(block);
    const YamlNode& original = *defaults.find(block);
    for (std::size_t i = 0; i < changed.keys.size(); ++i) {
      INFO(block << "." << changed.keys[i].text);
      const YamlNode* other = original.find(changed.keys[i].text);
      REQUIRE(other != nullptr);
      const bool is_same_scalar = other->kind == YamlKind::kScalar && changed.items[i].kind == YamlKind::kScalar &&
                                  other->text == changed.items[i].text;
      const bool is_only_loss = block == "loss" && changed.keys[i].text == "type";
      CHECK(is_same_scalar == is_only_loss);
    }
  }
}

TEST_CASE("a loss is dumped with its own options only", "[recipe]") {
  Recipe recipe;
  recipe.model.name_or_path = "model";
  recipe.run.output_dir = "out";
  recipe.data.train = {unusual_set()};
  recipe.loss.type = loss::LossType::kCoSent;
  recipe.loss.scale = 12.5;
  recipe.loss.similarity_fct = loss::SimilarityFunction::kManhattanSim;
  recipe.loss.matryoshka = loss::MatryoshkaConfig{{64, 32}, {1.0, 0.5}};
  const std::string text = dump(recipe);
  CHECK_THAT(text, !Catch::Contains("gather_across_devices"));
  const Recipe back = read_back(text);
  CHECK(dump(back) == text);
  CHECK(back.loss.type == loss::LossType::kCoSent);
  CHECK(back.loss.scale == 12.5);
  CHECK(back.loss.similarity_fct == loss::SimilarityFunction::kManhattanSim);
  CHECK(back.loss.matryoshka.value().dims == recipe.loss.matryoshka.value().dims);
}

TEST_CASE("the resolved recipe loads again", "[recipe]") {
  const TemporaryRecipe file(small_recipe() + R"(
evaluators:
  - {type: InformationRetrievalEvaluator, name: dev, beir: test/bad_recipes/data, split: dev}
train: {global_batch_size: 8, eval_strategy: steps, eval_steps: 2, learning_rate: 1e-4}
)");
  const std::string text = dump(resolve(load(file.path(), {"model.prompts={query: \"q: $${X}\"}"}), 2));
  const TemporaryRecipe again(text);
  const Recipe back = load(again.path(), {});
  CHECK(dump(back) == text);
  CHECK(back.train.per_device_train_batch_size == 4);
  CHECK(back.model.prompts.at("query") == "q: ${X}");
}

TEST_CASE("strings are quoted where readers might see something else", "[recipe]") {
  CHECK(yaml_string("plain/path_1.0-x") == "plain/path_1.0-x");
  CHECK(yaml_string("no") == "\"no\"");
  CHECK(yaml_string("1.5") == "\"1.5\"");
  CHECK(yaml_string("") == "\"\"");
  CHECK(yaml_string("a: b") == "\"a: b\"");
  CHECK(yaml_string("null") == "\"null\"");
  CHECK(yaml_string("a\nb\"") == "\"a\\nb\\\"\"");
  CHECK(yaml_string("2024-01-01") == "\"2024-01-01\"");
  CHECK(yaml_number(2e-5) == "2.0e-05");
  CHECK(yaml_number(0.1) == "0.1");
}

}  // namespace stft::recipe
