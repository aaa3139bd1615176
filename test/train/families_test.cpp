// The central law for every family, and how decoders' files are read and written.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/error.h"
#include "checkpoint/export_model.h"
#include "io/temporary_directory.h"
#include "support/family_cases.h"
#include "support/family_model.h"
#include "support/run_fixture.h"
#include "support/same_training.h"

using namespace stft;
using test::run_ranks;

namespace {

recipe::Recipe recipe_for(const std::string& directory) {
  auto recipe = test::tiny_recipe();
  test::use_triplets(recipe, 1, 20);
  recipe.model.name_or_path = directory;
  recipe.model.max_seq_length = 24;
  recipe.model.dropout = 0.1;
  recipe.train.max_steps = 2;
  recipe.train.global_batch_size = 10;
  recipe.optim.learning_rate = 0.02;
  recipe.optim.max_grad_norm = 1.0;
  return recipe;
}

test::Trained trained_on(const recipe::Recipe& recipe, int64_t ranks) {
  test::Trained result;
  run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const bool is_first = world->rank() == 0;
    auto run = test::assemble_on(std::move(world), recipe, shard::Strategy::kFullShard);
    auto runner = test::runner_of(*run);
    auto trained = test::train_all(*run, runner);
    if (is_first) {
      result = std::move(trained);
    }
  });
  return result;
}

io::Json small_llama() {
  auto config = test::trainable_config("llama");
  config["architectures"] = {"LlamaForCausalLM"};
  config["tie_word_embeddings"] = true;
  return config;
}

std::unique_ptr<train::Run> assembled(const recipe::Recipe& recipe) {
  return test::assemble_on(dist::ProcessGroup::single(), recipe, shard::Strategy::kFullShard);
}

void export_to(train::Run& run, const std::string& directory) {
  checkpoint::export_model({*run.model, *run.weights, *run.engine, run.mesh->world()}, directory);
}

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  const auto file = io::SafetensorsFile::open(path);
  for (const io::TensorInfo& info : file.tensors()) {
    names.push_back(info.name);
  }
  return names;
}

// A model of the family with weights of its own, and the recipe that trains it.
recipe::Recipe recipe_for_family(const std::string& family, const test::TemporaryDirectory& directory) {
  const auto config = test::trainable_config(family);
  test::write_model_directory(directory.path("model"), config);
  test::write_weights(directory.path("model"), test::invented_weights(config));
  return recipe_for(directory.path("model"));
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

TEST_CASE("LoRA attaches to every projection of every family, and trains on two ranks as on one") {
  for (const std::string& family : test::family_names()) {
    INFO(family);
    const test::TemporaryDirectory directory;
    auto recipe = recipe_for_family(family, directory);
    recipe.optim.learning_rate = 0.1;
    peft::AdapterConfig adapter;
    adapter.r = 2;
    adapter.lora_alpha = 4;
    adapter.lora_dropout = 0.1;
    adapter.target_modules = {"all-linear"};
    recipe.adapter = adapter;
    const auto one = trained_on(recipe, 1);
    auto resting = recipe;
    resting.optim.learning_rate = 0;
    const auto before = trained_on(resting, 1);
    const auto run = assembled(recipe);
    CHECK(run->adapter->adapter.modules.size() == peft::module_names(*run->model).linear.size());
    for (size_t i = 0; i < one.weights.size(); ++i) {
      const model::Parameter& parameter = run->model->parameters()[i];
      INFO(parameter.name);
      const bool is_equal = at::equal(one.weights[i], before.weights[i]);
      CHECK((parameter.is_trainable || is_equal));
      if (parameter.name.find("lora_B") != std::string::npos) {
        CHECK_FALSE(is_equal);
      }
    }
    test::check_same_training(trained_on(recipe, 2), one);
    recipe.train.gradient_checkpointing = true;
    test::check_same_training(trained_on(recipe, 2), one);
  }
}

TEST_CASE("every family trains on two ranks as on one, recomputed and merged too") {
  for (const std::string& family : test::family_names()) {
    INFO(family);
    const test::TemporaryDirectory directory;
    auto recipe = recipe_for_family(family, directory);
    const auto one = trained_on(recipe, 1);
    REQUIRE(one.losses.size() == 2);
    auto resting = recipe;
    resting.optim.learning_rate = 0;
    CHECK(test::largest_change(one, trained_on(resting, 1)) > 1e-3);
    test::check_same_training(trained_on(recipe, 2), one);
    recipe.train.gradient_checkpointing = true;
    recipe.sharding.wrap = shard::WrapKind::kAuto;
    test::check_same_training(trained_on(recipe, 2), one);
  }
}

TEST_CASE("a StaticEmbedding trains on two ranks as on one, and its export is trained on") {
  const test::TemporaryDirectory directory;
  auto recipe = recipe_for(test::golden_path("tiny_static"));
  recipe.model.max_seq_length.reset();
  recipe.model.dropout.reset();
  const auto one = trained_on(recipe, 1);
  auto resting = recipe;
  resting.optim.learning_rate = 0;
  CHECK(test::largest_change(one, trained_on(resting, 1)) > 1e-3);
  test::check_same_training(trained_on(recipe, 2), one);
  export_to(*assembled(recipe), directory.path("out"));
  CHECK_FALSE(std::filesystem::exists(directory.path("out/config.json")));
  CHECK_FALSE(std::filesystem::exists(directory.path("out/sentence_bert_config.json")));
  CHECK(names_in(directory.path("out/model.safetensors")) == std::vector<std::string>{"embedding.weight"});
  recipe.model.name_or_path = directory.path("out");
  test::check_same_training(trained_on(recipe, 2), one);
}

TEST_CASE("a decoder without modules.json is pooled at its last token, unless it sees both ways") {
  const test::TemporaryDirectory directory;
  auto config = small_llama();
  test::write_model_directory(directory.path("model"), config);
  CHECK((model::read_model_spec(directory.path("model")).modules[1].pooling ==
         std::vector<model::PoolingMode>{model::PoolingMode::kLastToken}));
  config["is_causal"] = false;
  model::ModelConfig overrides;
  overrides.causal = false;
  const auto causal = model::read_model_spec(directory.path("model"));
  const std::vector<model::PoolingMode> mean{model::PoolingMode::kMean};
  CHECK((model::with_overrides(causal, overrides, 1).modules[1].pooling == mean));
  overrides.pooling = {model::PoolingMode::kCls};
  CHECK((model::with_overrides(causal, overrides, 1).modules[1].pooling == overrides.pooling));
  std::filesystem::remove(directory.path("model/config.json"));
  directory.write("model/config.json", config.dump());
  CHECK((model::read_model_spec(directory.path("model")).modules[1].pooling ==
         std::vector<model::PoolingMode>{model::PoolingMode::kMean}));
}

TEST_CASE("model.causal false is computed with and exported; true is refused for a bidirectional model") {
  const test::TemporaryDirectory directory;
  const auto config = small_llama();
  test::write_model_directory(directory.path("model"), config);
  test::write_weights(directory.path("model"), test::invented_weights(config));
  auto recipe = recipe_for(directory.path("model"));
  const auto causal = trained_on(recipe, 1);
  recipe.model.causal = false;
  CHECK(std::abs(trained_on(recipe, 1).losses[0] - causal.losses[0]) > 1e-4);
  export_to(*assembled(recipe), directory.path("out"));
  const auto written = io::read_json_file(directory.path("out/config.json"));
  CHECK(written.at("is_causal") == false);
  CHECK(written.at("rms_norm_eps") == config.at("rms_norm_eps"));
  recipe.model.name_or_path = test::golden_path("tiny_bert");
  recipe.model.causal = true;
  CHECK_THAT(test::message_of<UserError>([&] { assembled(recipe); }), Catch::Contains("model.causal"));
}

TEST_CASE("a decoder's head is carried unless it is the tied table once more") {  // A09
  const test::TemporaryDirectory directory;
  const auto config = small_llama();
  auto weights = test::invented_weights(config);
  const auto table = weights.front().value;
  const auto exported_names = [&](const std::string& name, bool is_tied, const std::optional<at::Tensor>& head) {
    auto own = config;
    own["tie_word_embeddings"] = is_tied;
    test::write_model_directory(directory.path(name), own);
    std::vector<test::NamedTensor> all;
    for (const auto& weight : weights) {
      all.push_back({"model." + weight.name, weight.value});
    }
    if (head) {
      all.push_back({"lm_head.weight", *head});
    }
    test::write_weights(directory.path(name), all, {"model.safetensors", "", io::Dtype::kBF16});
    const auto run = assembled(recipe_for(directory.path(name)));
    export_to(*run, directory.path(name + "_out"));
    return names_in(directory.path(name + "_out/model.safetensors"));
  };
  CHECK_FALSE(has(exported_names("tied_twice", true, table), "lm_head.weight"));
  CHECK(has(exported_names("tied_but_different", true, table * 2), "lm_head.weight"));
  CHECK(has(exported_names("untied", false, table), "lm_head.weight"));
  const auto without = exported_names("without_head", false, std::nullopt);
  CHECK(without.size() == weights.size());
  CHECK(has(without, "model.embed_tokens.weight"));
}

TEST_CASE("a decoder's weights may lie in several files of half precision; what is missing or amiss is named") {
  const test::TemporaryDirectory directory;
  const auto config = small_llama();
  auto weights = test::invented_weights(config);
  test::write_model_directory(directory.path("model"), config);
  std::vector<test::NamedTensor> first(weights.begin(), weights.begin() + 3);
  std::vector<test::NamedTensor> second(weights.begin() + 3, weights.end());
  const auto write = [&](io::Dtype dtype) {
    io::Json index = {{"metadata", io::Json::object()}, {"weight_map", io::Json::object()}};
    for (const auto& [file, part] : {std::pair{"model-00001-of-00002.safetensors", &first},
                                     std::pair{"model-00002-of-00002.safetensors", &second}}) {
      test::write_weights(directory.path("model"), *part, {file, "model.", dtype});
      for (const auto& weight : *part) {
        index["weight_map"]["model." + weight.name] = file;
      }
    }
    directory.write("model/model.safetensors.index.json", index.dump());
  };
  for (const auto dtype : {io::Dtype::kBF16, io::Dtype::kF16}) {
    write(dtype);
    const auto run = assembled(recipe_for(directory.path("model")));
    for (size_t i = 0; i < weights.size(); ++i) {
      const auto torch_dtype = dtype == io::Dtype::kBF16 ? at::kBFloat16 : at::kHalf;
      CHECK(at::equal(run->engine->gather(static_cast<int64_t>(i)), weights[i].value.to(torch_dtype).to(at::kFloat)));
    }
  }
  second.back().value = second.back().value.narrow(0, 0, 4);
  const std::string missing = second[1].name;
  second.erase(second.begin() + 1);
  write(io::Dtype::kF32);
  const auto message = test::message_of<UserError>([&] { assembled(recipe_for(directory.path("model"))); });
  CHECK_THAT(message, Catch::Contains("'model." + missing + "' is missing"));
  CHECK_THAT(message, Catch::Contains("'model." + second.back().name + "' has shape [4], expected [16]"));
}
