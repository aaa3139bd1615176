// export --merge-lora against PEFT's merge_and_unload.
#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "base/error.h"
#include "checkpoint/export_model.h"
#include "io/file.h"
#include "io/temporary_directory.h"
#include "support/golden.h"

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
