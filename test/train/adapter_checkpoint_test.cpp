// Checkpoints and final/ of runs with an adapter: what they hold, resuming, the best one, exports.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/error.h"
#include "checkpoint/convert.h"
#include "checkpoint/export_model.h"
#include "checkpoint/stored_model.h"
#include "checkpoint/verify.h"
#include "checkpoint_run.h"
#include "io/temporary_directory.h"
#include "train/adapter.h"
#include "train/loaded_model.h"

using namespace stft;
namespace fs = std::filesystem;

namespace {

recipe::Recipe lora_recipe(const std::string& output_dir) {
  auto recipe = test::checkpoint_recipe(output_dir);
  recipe.optim.learning_rate = 1e-2;
  peft::AdapterConfig adapter;
  adapter.r = 3;
  adapter.lora_alpha = 6;
  adapter.lora_dropout = 0.1;
  adapter.target_modules = {"query", "value", "output.dense"};
  adapter.target_modules_is_list = true;
  recipe.adapter = adapter;
  return recipe;
}

std::map<std::string, std::string> final_of(const std::string& directory) {
  return test::contents(directory + "/final");
}

// Embeddings of a directory of a whole model or of an adapter.
at::Tensor embeddings_of(const std::string& directory, const std::string& base) {
  const auto loaded = train::load_model(directory, base);
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets{0};
  std::vector<model::TextKey> keys;
  for (const char* text : {"a short text", "another one, somewhat longer than the first", "silver"}) {
    const auto of_text = loaded.tokenizer->encode_ids(text, loaded.model->max_seq_length());
    ids.insert(ids.end(), of_text.begin(), of_text.end());
    offsets.push_back(static_cast<int64_t>(ids.size()));
    keys.push_back({static_cast<uint32_t>(keys.size()), 0});
  }
  return loaded.model->embed(model::make_token_batch(ids, offsets, keys, model::Layout::kPacked), {});
}

}  // namespace

TEST_CASE("final/ is the adapter alone, whole whatever the sharding, and its merge embeds alike") {
  const test::TemporaryDirectory directory;
  const std::string base = test::golden_path("tiny_bert");
  for (const int64_t ranks : {1, 2}) {
    const std::string run = directory.path("run" + std::to_string(ranks));
    auto recipe = lora_recipe(run);
    test::save_every(recipe, 6, checkpoint::StateDictType::kSharded);
    test::train_run(recipe, {ranks});
    const auto files = final_of(run);
    for (const char* name : {"adapter_config.json", "adapter_model.safetensors", "modules.json", "tokenizer.json",
                             "1_Pooling/config.json", "sentence_bert_config.json"}) {
      CHECK(files.contains(name));
    }
    CHECK_FALSE(files.contains("config.json"));
    CHECK_FALSE(files.contains("model.safetensors"));
    const auto file = io::SafetensorsFile::open(run + "/final/adapter_model.safetensors");
    CHECK(file.tensors().size() == 2 * 2 * 4);  // two layers; output.dense is there twice
    for (const io::TensorInfo& info : file.tensors()) {
      CHECK(info.name.starts_with("base_model.model.encoder.layer."));
      const auto rows = test::read_tensor(file.path(), info.name).norm(2, {1});
      CHECK(rows.min().item<double>() > 0);  // A29: no row of B is zero
    }
    const auto config = io::read_json_file(run + "/final/adapter_config.json");
    CHECK(config["base_model_name_or_path"] == base);
    CHECK(config["r"] == 3);

    const auto from_final = embeddings_of(run + "/final", base);
    CHECK(test::max_difference(from_final, embeddings_of(base, "")) > 1e-3);
    CHECK(test::max_difference(from_final, embeddings_of(run + "/checkpoint-12", base)) == 0);
    checkpoint::export_directory(run + "/checkpoint-12",
                                 {checkpoint::WeightPrecision::kAsInput, run + "/merged", "", true});
    CHECK(test::max_difference(from_final, embeddings_of(run + "/merged", "")) < 1e-5);
  }
}

TEST_CASE("4 + 4 steps of an adapter are 8, FULL and SHARDED, also at another number of ranks") {
  const test::TemporaryDirectory directory;
  const auto type = GENERATE(checkpoint::StateDictType::kFull, checkpoint::StateDictType::kSharded);
  auto recipe = lora_recipe(directory.path("whole"));
  recipe.train.max_steps = 8;
  test::save_every(recipe, 4, type);
  test::train_run(recipe, {2});
  for (const int64_t ranks : {1, 2, 3}) {
    INFO("resumed on ranks " << ranks);
    const std::string run = directory.path("resumed" + std::to_string(ranks));
    fs::copy(directory.path("whole"), run, fs::copy_options::recursive);
    fs::remove_all(run + "/checkpoint-8");
    fs::remove_all(run + "/final");
    recipe.run.output_dir = run;
    test::RunOptions options{ranks};
    options.resume = test::auto_resume();
    test::train_run(recipe, options);
    const std::string name = "/final/adapter_model.safetensors";
    if (ranks == 2) {
      CHECK(io::read_text_file(run + name) == io::read_text_file(directory.path("whole") + name));
    }
    const auto file = io::SafetensorsFile::open(run + name);
    for (const io::TensorInfo& info : file.tensors()) {
      CHECK(test::max_difference(test::read_tensor(file.path(), info.name),
                                 test::read_tensor(directory.path("whole") + name, info.name)) < 1e-5);
    }
  }
}

TEST_CASE("an adapter's checkpoint holds no base, verifies, and converts") {
  const test::TemporaryDirectory directory;
  const std::string run = directory.path("run");
  auto recipe = lora_recipe(run);
  recipe.train.max_steps = 4;
  test::save_every(recipe, 4, checkpoint::StateDictType::kSharded);
  test::train_run(recipe, {2});
  const std::string saved = run + "/checkpoint-4";
  CHECK(fs::exists(saved + "/adapter_config.json"));
  CHECK_FALSE(fs::exists(saved + "/config.json"));
  const auto stored = checkpoint::StoredModel::open(saved);
  CHECK(stored.is_adapter());
  for (const auto& tensor : stored.plan().front().tensors) {
    CHECK(tensor.sharded_key.starts_with("model.0.model.encoder.layer."));
    CHECK(tensor.sharded_key.find(".default.weight") != std::string::npos);
  }
  CHECK(checkpoint::verify_checkpoint(saved).faults.empty());
  const std::string full = directory.path("full");
  checkpoint::convert_checkpoint(saved, {checkpoint::StateDictType::kFull, std::nullopt, full});
  CHECK(checkpoint::verify_checkpoint(full).faults.empty());
  const std::string file = "/adapter_model.safetensors";
  CHECK(io::read_text_file(full + file) == io::read_text_file(run + "/final" + file));
  const std::string again = directory.path("sharded");
  checkpoint::convert_checkpoint(full, {checkpoint::StateDictType::kSharded, 3, again});
  CHECK(checkpoint::verify_checkpoint(again).faults.empty());
  CHECK(test::max_difference(embeddings_of(again, test::golden_path("tiny_bert")),
                             embeddings_of(run + "/final", test::golden_path("tiny_bert"))) == 0);
}

TEST_CASE("A29: a run goes on from an adapter; without steps it writes the same bytes") {
  const test::TemporaryDirectory directory;
  const std::string run = directory.path("run");
  auto recipe = lora_recipe(run);
  recipe.train.max_steps = 1;
  recipe.optim.learning_rate = 0;
  recipe.optim.warmup_steps = 0;
  recipe.adapter->r = 4;
  recipe.adapter->lora_alpha = 8;
  recipe.adapter->target_modules = {"query", "value"};
  recipe.adapter->path = test::golden_path("peft/default");
  for (const int64_t ranks : {1, 2}) {
    test::train_run(recipe, {ranks});
    const std::string file = "/adapter_model.safetensors";
    CHECK(io::read_text_file(run + "/final" + file) == io::read_text_file(*recipe.adapter->path + file));
  }
  recipe.adapter->r = 5;
  CHECK(test::message_of<UserError>([&] { test::train_run(recipe, {1}); }).find("adapter.r") != std::string::npos);
  // Given is given, also at the default; what is not given is the adapter's.
  recipe.adapter->r = 8;
  recipe.origins["adapter.r"] = "recipe.yaml:3";
  CHECK(test::message_of<UserError>([&] { test::train_run(recipe, {1}); }).find("recipe.yaml:3: adapter.r") !=
        std::string::npos);
  recipe.origins.clear();
  CHECK(train::with_stored_adapter(recipe).adapter->r == 4);
  recipe.adapter->r = 4;
  recipe.adapter->target_modules = {"query"};
  CHECK(test::message_of<UserError>([&] { test::train_run(recipe, {1}); }).find("adapter.target_modules") !=
        std::string::npos);
}

TEST_CASE("an adapter of a model with a head goes on under the names of the model without") {
  const test::TemporaryDirectory directory;
  const std::string golden = test::golden_path("peft/default");
  const std::string headed = directory.path("headed");
  fs::create_directory(headed);
  fs::copy_file(golden + "/adapter_config.json", headed + "/adapter_config.json");
  const std::string prefix = "base_model.model.";
  const std::string file = "/adapter_model.safetensors";
  const auto source = io::SafetensorsFile::open(golden + file);
  std::vector<io::TensorSpec> tensors;
  for (const io::TensorInfo& info : source.tensors()) {
    tensors.push_back({prefix + "bert." + info.name.substr(prefix.size()), info.dtype, info.shape});
  }
  io::SafetensorsWriter writer(headed + file, tensors, source.metadata());
  for (const io::TensorInfo& info : writer.layout()) {
    writer.append(source.bytes(*source.find(prefix + info.name.substr(prefix.size() + std::string("bert.").size()))));
  }
  writer.finish();
  const std::string base = test::golden_path("tiny_bert");
  CHECK(test::max_difference(embeddings_of(headed, base), embeddings_of(golden, base)) == 0);
  auto recipe = lora_recipe(directory.path("run"));
  recipe.adapter = peft::AdapterConfig{};
  recipe.adapter->path = headed;
  recipe.train.max_steps = 1;
  recipe.optim.learning_rate = 0;
  test::train_run(recipe, {2});
  CHECK(io::read_text_file(directory.path("run/final") + file) == io::read_text_file(golden + file));
}

TEST_CASE("the modules behind the transformer are trained and saved with an adapter") {
  const test::TemporaryDirectory directory;
  const std::string base = test::golden_path("tiny_bert_dense");
  for (const auto type : {checkpoint::StateDictType::kFull, checkpoint::StateDictType::kSharded}) {
    const std::string run = directory.path(type == checkpoint::StateDictType::kFull ? "full" : "sharded");
    auto recipe = lora_recipe(run);
    recipe.model.name_or_path = base;
    recipe.train.max_steps = 4;
    test::save_every(recipe, 4, type);
    test::train_run(recipe, {2});
    const auto trained = test::read_tensor(run + "/final/2_Dense/model.safetensors", "linear.weight");
    CHECK(test::max_difference(trained, test::read_tensor(base + "/2_Dense/model.safetensors", "linear.weight")) >
          1e-4);
    const auto from_final = embeddings_of(run + "/final", base);
    CHECK(test::max_difference(from_final, embeddings_of(run + "/checkpoint-4", base)) == 0);
    checkpoint::export_directory(run + "/checkpoint-4",
                                 {checkpoint::WeightPrecision::kAsInput, run + "/merged", "", true});
    CHECK(test::max_difference(from_final, embeddings_of(run + "/merged", "")) < 1e-5);
  }
}

TEST_CASE("the best checkpoint of an adapter is reloaded and proved") {
  const test::TemporaryDirectory directory;
  const std::string run = directory.path("run");
  auto recipe = lora_recipe(run);
  eval::EvaluatorConfig config;
  config.name = "beir";
  config.queries.path = test::golden_path("data/beir/queries.jsonl");
  config.corpus.path = test::golden_path("data/beir/corpus.jsonl");
  config.qrels_path = test::golden_path("data/beir/qrels/test.tsv");
  recipe.evaluators = {config};
  recipe.train.eval_strategy = recipe::EvalStrategy::kSteps;
  recipe.train.eval_steps = 4;
  test::save_every(recipe, 4, checkpoint::StateDictType::kSharded);
  recipe.checkpoint.load_best_model_at_end = true;
  recipe.checkpoint.metric_for_best_model = "beir_cosine_ndcg@10";
  CHECK(test::train_run(recipe, {2}) == train::Outcome::kDone);
  CHECK(fs::exists(run + "/final/adapter_model.safetensors"));
}

TEST_CASE("adapter.dtype is that of the file; the checkpoint keeps fp32") {
  const test::TemporaryDirectory directory;
  const std::string run = directory.path("run");
  auto recipe = lora_recipe(run);
  recipe.adapter->dtype = quant::WeightDtype::kBf16;
  recipe.train.max_steps = 4;
  test::save_every(recipe, 4, checkpoint::StateDictType::kFull);
  test::train_run(recipe, {2});
  const auto dtype_of = [&](const std::string& path) {
    return io::SafetensorsFile::open(path + "/adapter_model.safetensors").tensors().front().dtype;
  };
  CHECK(dtype_of(run + "/final") == io::Dtype::kBF16);
  CHECK(dtype_of(run + "/checkpoint-4") == io::Dtype::kF32);
}
