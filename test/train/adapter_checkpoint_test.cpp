// Checkpoints and final/ of runs with an adapter: what they hold, resuming, the best one, exports.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "checkpoint/base_identity.h"
#include "checkpoint/convert.h"
#include "checkpoint/dcp_metadata.h"
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

TEST_CASE("adapter_only: false: a checkpoint holds the base too, under PEFT's names, and needs no other") {
  const test::TemporaryDirectory directory;
  const auto type = GENERATE(checkpoint::StateDictType::kFull, checkpoint::StateDictType::kSharded);
  const bool is_full = type == checkpoint::StateDictType::kFull;
  const std::string base = directory.path("base");
  fs::copy(test::golden_path("tiny_bert"), base, fs::copy_options::recursive);
  auto recipe = lora_recipe(directory.path("run"));
  recipe.model.name_or_path = base;
  recipe.adapter->target_modules = {"query", "value"};
  recipe.adapter->bias = peft::LoraBias::kAll;
  recipe.adapter->modules_to_save = {"intermediate"};
  recipe.checkpoint.adapter_only = false;
  recipe.train.max_steps = 8;
  test::save_every(recipe, 4, type);
  test::train_run(recipe, {2});
  const std::string saved = directory.path("run/checkpoint-8");
  CHECK_FALSE(fs::exists(directory.path("run/final/base_model")));
  CHECK(io::read_text_file(saved + "/base_model/config.json") == io::read_text_file(base + "/config.json"));
  CHECK(fs::exists(saved + "/base_model/model.safetensors") == is_full);
  std::set<std::string> keys;
  const auto stored = checkpoint::StoredModel::open(saved);
  for (const auto& file : stored.plan()) {
    for (const auto& tensor : file.tensors) {
      keys.insert(tensor.sharded_key);
    }
  }
  const std::string layer = "model.0.model.encoder.layer.0.";
  for (const char* name :
       {"attention.self.query.base_layer.weight", "attention.self.query.base_layer.bias",
        "attention.self.query.lora_A.default.weight", "attention.self.key.weight", "attention.self.key.bias",
        "intermediate.original_module.dense.weight", "intermediate.original_module.dense.bias",
        "intermediate.modules_to_save.default.dense.weight", "intermediate.modules_to_save.default.dense.bias",
        "output.LayerNorm.weight"}) {
    CHECK(keys.contains(layer + name));
  }
  const auto from_final = embeddings_of(directory.path("run/final"), base);

  // Resumed with the base: the same run.
  const std::string resumed = directory.path("resumed");
  fs::copy(directory.path("run"), resumed, fs::copy_options::recursive);
  fs::remove_all(resumed + "/checkpoint-8");
  fs::remove_all(resumed + "/final");
  auto again = recipe;
  again.run.output_dir = resumed;
  test::RunOptions options{2};
  options.resume = test::auto_resume();
  test::train_run(again, options);
  const std::string file = "/adapter_model.safetensors";
  CHECK(io::read_text_file(resumed + "/final" + file) == io::read_text_file(directory.path("run/final") + file));

  // Everything else without it.
  const std::string whole = test::golden_path("tiny_bert");
  fs::remove_all(base);
  CHECK(checkpoint::verify_checkpoint(saved).faults.empty());
  const std::string full = directory.path("full"), sharded = directory.path("sharded");
  checkpoint::convert_checkpoint(saved, {checkpoint::StateDictType::kFull, std::nullopt, full});
  checkpoint::convert_checkpoint(full, {checkpoint::StateDictType::kSharded, 3, sharded});
  for (const std::string& checkpoint : {saved, full, sharded}) {
    CHECK(checkpoint::verify_checkpoint(checkpoint).faults.empty());
    const auto kept = checkpoint::local_base(checkpoint);
    REQUIRE(kept == checkpoint + "/base_model");
    CHECK(test::max_difference(embeddings_of(checkpoint, *kept), from_final) == 0);
    const std::string merged = checkpoint + ".merged";
    checkpoint::export_directory(checkpoint, {checkpoint::WeightPrecision::kAsInput, merged, "", true});
    CHECK(test::max_difference(embeddings_of(merged, ""), from_final) < 1e-5);
    const std::string exported = checkpoint + ".exported";
    checkpoint::export_directory(checkpoint, {checkpoint::WeightPrecision::kAsInput, exported});
    CHECK(test::contents(exported) == test::contents(directory.path("run/final")));
  }
  CHECK(test::contents(full + "/base_model").size() == 2);
  const auto of_base = io::SafetensorsFile::open(whole + "/model.safetensors");
  const auto kept = io::SafetensorsFile::open(full + "/base_model/model.safetensors");
  CHECK(kept.tensors().size() == of_base.tensors().size());
  for (const io::TensorInfo& info : of_base.tensors()) {
    const io::TensorInfo* found = kept.find(info.name);
    REQUIRE(found != nullptr);
    const auto ours = kept.bytes(*found), theirs = of_base.bytes(info);
    CHECK((found->dtype == info.dtype && found->shape == info.shape));
    CHECK(std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end()));
  }
}

TEST_CASE("a checkpoint with the names of earlier versions is gone on from") {
  const test::TemporaryDirectory directory;
  auto recipe = lora_recipe(directory.path("run"));
  recipe.adapter->target_modules = {"query"};
  recipe.adapter->bias = peft::LoraBias::kLoraOnly;
  recipe.adapter->modules_to_save = {"intermediate"};
  recipe.train.max_steps = 8;
  test::save_every(recipe, 4, checkpoint::StateDictType::kFull);
  test::train_run(recipe, {2});
  const std::string old_run = directory.path("old"), saved = old_run + "/checkpoint-4";
  fs::copy(directory.path("run"), old_run, fs::copy_options::recursive);
  fs::remove_all(old_run + "/checkpoint-8");
  fs::remove_all(old_run + "/final");
  int64_t renamed = 0;
  const auto rename = [&](std::string& name) {
    for (const std::string wrapper : {".base_layer", ".modules_to_save.default"}) {
      if (const size_t place = name.find(wrapper); place != std::string::npos) {
        name.erase(place, wrapper.size());
        renamed += 1;
      }
    }
  };
  auto manifest = *checkpoint::read_manifest(saved);
  for (auto& tensor : manifest.weights.front().tensors) {
    rename(tensor.sharded_key);
  }
  const std::string path = saved + "/optimizer_0/.metadata";
  auto optimizer = checkpoint::parse_dcp_metadata(io::read_text_file(path), path);
  for (auto& tensor : optimizer.tensors) {
    rename(tensor.key);
    for (auto& part : tensor.path) {
      if (auto* name = std::get_if<std::string>(&part)) {
        rename(*name);
      }
    }
  }
  CHECK(renamed == 6 * (1 + 3 * 2));  // of two layers a bias, and a weight and a bias; three tensors of the optimizer
  directory.write("old/checkpoint-4/optimizer_0/.metadata", checkpoint::serialize(optimizer));
  std::vector<std::string> paths;
  for (const auto& file : manifest.files) {
    paths.push_back(file.path);
  }
  manifest.files = checkpoint::describe_files(saved, paths);
  checkpoint::write_manifest(manifest, saved);
  recipe.run.output_dir = old_run;
  test::RunOptions options{2};
  options.resume = test::auto_resume();
  test::train_run(recipe, options);
  const std::string file = "/final/adapter_model.safetensors";
  CHECK(io::read_text_file(old_run + file) == io::read_text_file(directory.path("run") + file));
}

TEST_CASE("a checkpoint knows its base: another one ends a resumed run and is warned of elsewhere") {
  const test::TemporaryDirectory directory;
  const std::string base = directory.path("base");
  fs::copy(test::golden_path("tiny_bert"), base, fs::copy_options::recursive);
  auto recipe = lora_recipe(directory.path("run"));
  recipe.model.name_or_path = base;
  recipe.train.max_steps = 4;
  test::save_every(recipe, 4, checkpoint::StateDictType::kSharded);
  test::train_run(recipe, {2});
  const std::string saved = directory.path("run/checkpoint-4");
  CHECK(checkpoint::read_manifest(saved)->base->name == base);
  CHECK_FALSE(checkpoint::other_base_warning(saved, test::golden_path("tiny_bert")));

  // One value of one tensor's first row.
  const auto file = io::SafetensorsFile::open(base + "/model.safetensors");
  const std::string name = "encoder.layer.1.output.dense.weight";
  std::string bytes = io::read_text_file(file.path());
  const auto place = bytes.find(std::string(reinterpret_cast<const char*>(file.bytes(*file.find(name)).data()), 64));
  REQUIRE(place != std::string::npos);
  bytes[place] = static_cast<char>(bytes[place] ^ 1);
  directory.write("base/model.safetensors", bytes);
  const auto warning = checkpoint::other_base_warning(saved, base);
  REQUIRE(warning);
  CHECK(warning->find("its weights differ") != std::string::npos);
  recipe.train.max_steps = 8;
  test::RunOptions options{2};
  options.resume = test::auto_resume();
  const std::string message = test::message_of<UserError>([&] { test::train_run(recipe, options); });
  CHECK(message.find("model.name_or_path: the base '" + base + "'") != std::string::npos);
  CHECK(message.find("its weights changed") != std::string::npos);
  directory.write("base/config.json", io::read_text_file(base + "/config.json").replace(0, 1, "{\"more\": 1,"));
  directory.write("base/model.safetensors", io::read_text_file(test::golden_path("tiny_bert") + "/model.safetensors"));
  CHECK(checkpoint::other_base_warning(saved, base)->find("its config.json differs") != std::string::npos);
}

TEST_CASE("model.causal with an adapter: its directory, its checkpoints and its merge compute alike") {
  const test::TemporaryDirectory directory;
  const std::string base = test::golden_path("tiny_llama");
  auto recipe = lora_recipe(directory.path("run"));
  recipe.model.name_or_path = base;
  recipe.model.dropout.reset();
  recipe.model.causal = false;
  recipe.adapter->target_modules = {"q_proj", "v_proj"};
  recipe.train.max_steps = 4;
  test::save_every(recipe, 4, checkpoint::StateDictType::kSharded);
  test::train_run(recipe, {2});
  const std::string last = directory.path("run/final"), saved = directory.path("run/checkpoint-4");
  const auto config = [](const std::string& path) { return io::read_json_file(path + "/sentence_bert_config.json"); };
  CHECK(config(last).at("config_args").at("is_causal") == false);
  CHECK(model::read_model_spec(last, base).config.at("is_causal") == false);
  const auto from_final = embeddings_of(last, base);
  CHECK(test::max_difference(from_final, embeddings_of(saved, base)) == 0);
  checkpoint::export_directory(saved, {checkpoint::WeightPrecision::kAsInput, directory.path("merged"), "", true});
  CHECK(io::read_json_file(directory.path("merged/config.json")).at("is_causal") == false);
  CHECK_FALSE(config(directory.path("merged")).contains("config_args"));
  CHECK(test::max_difference(from_final, embeddings_of(directory.path("merged"), "")) < 1e-5);
  checkpoint::export_directory(saved, {checkpoint::WeightPrecision::kAsInput, directory.path("exported")});
  CHECK(test::contents(directory.path("exported")) == test::contents(last));

  auto on = recipe;
  on.run.output_dir = directory.path("on");
  on.model.causal.reset();
  on.adapter->path = last;
  CHECK(train::with_stored_adapter(on).model.causal == false);
  on.model.causal = true;
  CHECK(test::message_of<UserError>([&] { train::with_stored_adapter(on); }).find("model.causal") != std::string::npos);

  auto text = config(last);
  text.erase("config_args");
  directory.write("run/final/sentence_bert_config.json", text.dump());
  CHECK(test::max_difference(from_final, embeddings_of(last, base)) > 1e-3);
}

TEST_CASE("a directory of PEFT's with a tokenizer of its own uses it, when it fits the table") {
  const test::TemporaryDirectory directory;
  const std::string base = test::golden_path("tiny_bert");
  const std::string bare = directory.path("bare");
  fs::copy(test::golden_path("peft/default"), bare);
  CHECK(train::load_tokenizer(bare, base).policy().files.front().starts_with(base));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    fs::copy_file(base + "/" + name, bare + "/" + name);
  }
  auto json = io::read_json_file(base + "/tokenizer.json");
  const auto ids = [&](const std::string& text) { return train::load_tokenizer(bare, base).encode_ids(text, 0); };
  const auto plain = ids("zweihundertmal");
  const auto with_token = [&](int64_t id) {
    json["added_tokens"].push_back({{"id", id},
                                    {"content", "zweihundertmal"},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", true},
                                    {"special", false}});
    directory.write("bare/tokenizer.json", json.dump());
    json["added_tokens"].erase(json["added_tokens"].size() - 1);
  };
  const int64_t rows = io::read_json_file(base + "/config.json").at("vocab_size").get<int64_t>();
  with_token(rows);
  CHECK(test::message_of<UserError>([&] { train::load_model(bare, base); }).find("the model's table has") !=
        std::string::npos);
  checkpoint::export_directory(bare, {checkpoint::WeightPrecision::kAsInput, directory.path("out"), base});
  CHECK(io::read_text_file(directory.path("out/tokenizer.json")) == io::read_text_file(bare + "/tokenizer.json"));
  checkpoint::export_directory(bare, {checkpoint::WeightPrecision::kAsInput, directory.path("merged"), base, true});
  CHECK(io::read_text_file(directory.path("merged/tokenizer.json")) == io::read_text_file(bare + "/tokenizer.json"));
  CHECK(ids("zweihundertmal") != plain);
}

TEST_CASE("verify finds an A without its B, whatever the manifest says") {
  const test::TemporaryDirectory directory;
  auto recipe = lora_recipe(directory.path("run"));
  recipe.train.max_steps = 4;
  test::save_every(recipe, 4, checkpoint::StateDictType::kFull);
  test::train_run(recipe, {1});
  const std::string saved = directory.path("run/checkpoint-4");
  const std::string path = saved + "/adapter_model.safetensors";
  const std::string copy = directory.path("copy.safetensors");
  fs::copy_file(path, copy);
  const std::string lost = "base_model.model.encoder.layer.0.attention.self.query.lora_B.weight";
  {
    const auto source = io::SafetensorsFile::open(copy);
    std::vector<io::TensorSpec> tensors;
    for (const io::TensorInfo& info : source.tensors()) {
      if (info.name != lost) {
        tensors.push_back({info.name, info.dtype, info.shape});
      }
    }
    io::SafetensorsWriter writer(path, tensors, source.metadata());
    for (const io::TensorInfo& info : writer.layout()) {
      writer.append(source.bytes(*source.find(info.name)));
    }
    writer.finish();
  }
  auto manifest = *checkpoint::read_manifest(saved);
  std::erase_if(manifest.weights.front().tensors, [&](const auto& tensor) { return tensor.key == lost; });
  std::vector<std::string> paths;
  for (const auto& file : manifest.files) {
    paths.push_back(file.path);
  }
  manifest.files = checkpoint::describe_files(saved, paths);
  checkpoint::write_manifest(manifest, saved);
  const auto faults = checkpoint::verify_checkpoint(saved).faults;
  REQUIRE(faults.size() == 1);
  CHECK(faults.front().find("'encoder.layer.0.attention.self.query' has no lora_B") != std::string::npos);
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
