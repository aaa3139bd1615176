// export --merge-lora against PEFT's merge_and_unload.
#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "base/error.h"
#include "checkpoint/export_model.h"
#include "io/file.h"
#include "io/temporary_directory.h"
#include "support/family_cases.h"
#include "support/family_model.h"
#include "support/golden.h"
#include "support/published_model.h"
#include "train/loaded_model.h"

using namespace stft;
namespace fs = std::filesystem;

namespace {

void merge(const std::string& adapter, const std::string& out,
           checkpoint::WeightPrecision precision = checkpoint::WeightPrecision::kAsInput) {
  checkpoint::export_directory(adapter, {precision, out, test::golden_path("tiny_bert"), true});
}

}  // namespace

TEST_CASE("a merged adapter is PEFT's merge_and_unload, bit by bit") {
  const std::string name = GENERATE("default", "all_linear_rslora", "dora", "lora_bias_regex", "modules_to_save",
                                    "bias_all", "pooler", "embedding");
  INFO(name);
  const test::TemporaryDirectory directory;
  const std::string out = directory.path("merged");
  merge(test::golden_path("peft/" + name), out);
  const std::string expected = test::golden_path("peft/" + name + "/expected.safetensors");
  const auto golden = io::SafetensorsFile::open(expected);
  const auto base = io::SafetensorsFile::open(test::golden_path("tiny_bert/model.safetensors"));
  const auto merged = io::SafetensorsFile::open(out + "/model.safetensors");
  REQUIRE(merged.tensors().size() == base.tensors().size());
  int changed = 0;
  for (const io::TensorInfo& info : merged.tensors()) {
    INFO(info.name);
    if (info.dtype != io::Dtype::kF32) {
      const auto before = base.bytes(*base.find(info.name));
      const auto after = merged.bytes(info);
      CHECK(std::equal(before.begin(), before.end(), after.begin(), after.end()));
      continue;
    }
    const bool is_merged = golden.find("merged/" + info.name) != nullptr;
    const auto want =
        is_merged ? test::read_tensor(expected, "merged/" + info.name) : test::read_tensor(base.path(), info.name);
    const auto found = test::read_tensor(merged.path(), info.name);
    if (name == "dora" && is_merged) {
      CHECK(test::max_difference(found, want) <= 3e-8);  // the order of the norm's sum is the machine's
    } else {
      CHECK(at::equal(found, want));
    }
    changed += is_merged ? 1 : 0;
  }
  CHECK(changed >= 2);
  CHECK(fs::exists(out + "/config.json"));
  CHECK(fs::exists(out + "/modules.json"));
  CHECK_FALSE(fs::exists(out + "/adapter_config.json"));
  CHECK_FALSE(fs::exists(out + "/adapter_model.safetensors"));
}

TEST_CASE("merging in bf16 rounds the sum once and says so in config.json") {
  const test::TemporaryDirectory directory;
  merge(test::golden_path("peft/default"), directory.path("merged"), checkpoint::WeightPrecision::kBFloat16);
  const std::string tensor = "encoder.layer.0.attention.self.query.weight";
  const auto want =
      test::read_tensor(test::golden_path("peft/default/expected.safetensors"), "merged/" + tensor).to(at::kBFloat16);
  const auto found = test::read_tensor(directory.path("merged/model.safetensors"), tensor);
  CHECK(at::equal(found, want.to(at::kFloat)));
  CHECK(io::read_text_file(directory.path("merged/config.json")).find("bfloat16") != std::string::npos);
}

TEST_CASE("without merging an adapter stays one, with the modules of its base") {
  const test::TemporaryDirectory directory;
  const std::string out = directory.path("adapter");
  checkpoint::export_directory(test::golden_path("peft/dora"),
                               {checkpoint::WeightPrecision::kAsInput, out, test::golden_path("tiny_bert"), false});
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors", "modules.json", "tokenizer.json",
                           "1_Pooling/config.json", "sentence_bert_config.json"}) {
    CHECK(fs::exists(out + "/" + file));
  }
  CHECK_FALSE(fs::exists(out + "/config.json"));
  CHECK_FALSE(fs::exists(out + "/model.safetensors"));
  const std::string file = "/adapter_model.safetensors";
  const auto before = io::SafetensorsFile::open(test::golden_path("peft/dora") + file);
  for (const io::TensorInfo& info : before.tensors()) {
    CHECK(at::equal(test::read_tensor(before.path(), info.name), test::read_tensor(out + file, info.name)));
  }
}

TEST_CASE("what cannot be merged is refused, and nothing is left behind") {
  const test::TemporaryDirectory directory;
  const std::string out = directory.path("merged");
  CHECK(test::message_of<UserError>([&] { merge(test::golden_path("tiny_bert"), out); }).find("has no adapter") !=
        std::string::npos);
  fs::create_directories(directory.path("zero"));
  directory.write("zero/adapter_config.json", R"({"peft_type": "LORA", "r": 1})");
  const std::string prefix = "base_model.model.encoder.layer.0.attention.self.query.";
  const auto write = [&](int64_t out_rows, const std::string& module) {
    std::vector<io::TensorSpec> tensors = {{module + "lora_A.weight", io::Dtype::kF32, {1, 32}},
                                           {module + "lora_B.weight", io::Dtype::kF32, {out_rows, 1}}};
    io::SafetensorsWriter writer(directory.path("zero/adapter_model.safetensors"), tensors, {});
    for (const io::TensorInfo& info : writer.layout()) {
      writer.append(std::vector<std::byte>(info.end - info.begin));
    }
    writer.finish();
  };
  write(32, prefix);
  CHECK(test::message_of<UserError>([&] { merge(directory.path("zero"), out); }).find("changes nothing") !=
        std::string::npos);
  write(16, prefix);
  CHECK(test::message_of<UserError>([&] { merge(directory.path("zero"), out); }).find("has another shape") !=
        std::string::npos);
  write(32, "base_model.model.encoder.layer.7.attention.self.query.");
  CHECK(test::message_of<UserError>([&] { merge(directory.path("zero"), out); }).find("adapts 'encoder.layer.7") !=
        std::string::npos);
  CHECK_FALSE(fs::exists(out));
  CHECK_FALSE(fs::exists(out + ".tmp"));
}

namespace {

// An adapter of rank 1 on `module`, a matrix of these sizes, that adds `value` to every element.
void write_adapter(const test::TemporaryDirectory& directory, const std::string& name, const std::string& module,
                   const std::vector<int64_t>& sizes, double value) {
  fs::create_directories(directory.path(name));
  directory.write(name + "/adapter_config.json", R"({"peft_type": "LORA", "r": 1, "lora_alpha": 1})");
  const std::string key = "base_model.model." + module;
  test::write_weights(
      directory.path(name),
      {{key + ".lora_A.weight", at::ones({1, sizes[1]})}, {key + ".lora_B.weight", at::full({sizes[0], 1}, value)}},
      {"adapter_model.safetensors"});
}

void merge_into(const test::TemporaryDirectory& directory, const std::string& base,
                checkpoint::WeightPrecision precision) {
  checkpoint::export_directory(directory.path("adapter"), {precision, directory.path("merged"), base, true});
}

}  // namespace

TEST_CASE("an adapter is merged into published files of NomicBERT and GTE under the model's own names") {
  for (const char* family : {"nomic_bert", "gte"}) {
    INFO(family);
    const test::FamilyGolden golden(family);
    const test::TemporaryDirectory directory;
    test::write_published(directory.path("base"), golden, golden.json.at("cases").at(0).at("config"));
    write_adapter(directory, "adapter", "layers.1.self_attn.k_proj", {16, 16}, 0.5);
    merge_into(directory, directory.path("base"), checkpoint::WeightPrecision::kAsInput);
    const std::string merged = directory.path("merged/model.safetensors");
    const std::string key = "layers.1.self_attn.k_proj.weight";
    const auto before = test::read_tensor(golden.tensors, "weights/" + key);
    CHECK(at::equal(test::read_tensor(merged, key), before + 0.5));
    CHECK(at::equal(test::read_tensor(merged, "layers.1.self_attn.q_proj.weight"),
                    test::read_tensor(golden.tensors, "weights/layers.1.self_attn.q_proj.weight")));
    CHECK(io::SafetensorsFile::open(merged).find("encoder.layers.1.attn.Wqkv.weight") == nullptr);
  }
}

TEST_CASE("a merged T5 has its table once, and an adapter of the table is refused under either name") {
  const test::TemporaryDirectory directory;
  const auto config = test::trainable_config("t5");
  test::write_model_directory(directory.path("base"), config);
  auto weights = test::invented_weights(config);
  REQUIRE(weights.front().name == "shared.weight");
  weights.push_back({"encoder.embed_tokens.weight", weights.front().value});
  test::write_weights(directory.path("base"), weights);
  write_adapter(directory, "adapter", "encoder.block.0.layer.0.SelfAttention.q", {24, 16}, 0.5);
  merge_into(directory, directory.path("base"), checkpoint::WeightPrecision::kAsInput);
  const auto merged = io::SafetensorsFile::open(directory.path("merged/model.safetensors"));
  CHECK(merged.find("shared.weight") != nullptr);
  CHECK(merged.find("encoder.embed_tokens.weight") == nullptr);

  const auto message_of_loading = [&] {
    return test::message_of<UserError>([&] { train::load_model(directory.path("adapter"), directory.path("base")); });
  };
  CHECK(message_of_loading().empty());
  fs::remove_all(directory.path("adapter"));
  write_adapter(directory, "adapter", "encoder.embed_tokens", {500, 16}, 0.5);
  CHECK(message_of_loading().find("under its second name") != std::string::npos);
}

TEST_CASE("a merge that is lost in rounding is refused") {
  const test::TemporaryDirectory directory;
  const auto config = test::trainable_config("bert");
  const std::string module = "encoder.layer.0.attention.self.query";
  auto weights = test::invented_weights(config);
  for (test::NamedTensor& weight : weights) {
    weight.value = weight.name == module + ".weight" ? at::ones_like(weight.value) : weight.value;
  }
  const std::string base = directory.path("base");
  test::write_model_directory(base, config);
  test::write_weights(base, weights);
  write_adapter(directory, "adapter", module, {16, 16}, 1e-4);  // less than half of what bf16 tells apart at 1
  merge_into(directory, base, checkpoint::WeightPrecision::kAsInput);
  const auto merge_again = [&] { merge_into(directory, base, checkpoint::WeightPrecision::kBFloat16); };
  CHECK(test::message_of<UserError>(merge_again).find("changes nothing") != std::string::npos);
}
