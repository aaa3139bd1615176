#include "peft/adapter_file.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "checkpoint/adapter_files.h"
#include "io/safetensors.h"
#include "io/temporary_directory.h"
#include "support/golden.h"
#include "train/loaded_model.h"

using namespace stft;

namespace {

// A file of zeros.
void write_tensors(const std::string& path, const std::vector<io::TensorSpec>& tensors) {
  io::SafetensorsWriter writer(path, tensors, {{"format", "pt"}});
  for (const io::TensorInfo& info : writer.layout()) {
    const std::vector<std::byte> zeros(info.end - info.begin);
    writer.append(zeros);
  }
  writer.finish();
}

std::vector<io::TensorSpec> query_of_layer_0(std::vector<int64_t> down, std::vector<int64_t> up) {
  const std::string prefix = "base_model.model.encoder.layer.0.attention.self.query.";
  return {{prefix + "lora_A.weight", io::Dtype::kF32, std::move(down)},
          {prefix + "lora_B.weight", io::Dtype::kF32, std::move(up)}};
}

std::string open_message(const std::string& directory) {
  return test::message_of<UserError>([&] { train::load_model(directory, test::golden_path("tiny_bert")); });
}

}  // namespace

TEST_CASE("the configurations that PEFT writes are read") {
  const auto rslora = peft::read_adapter_config(test::golden_path("peft/all_linear_rslora"));
  CHECK(rslora.base_model == "test/golden/tiny_bert");
  CHECK(rslora.config.r == 4);
  CHECK(rslora.config.use_rslora);
  CHECK(rslora.config.rank_pattern.at("intermediate.dense") == 2);
  CHECK(rslora.config.alpha_pattern.at("value") == 16);
  CHECK(rslora.config.target_modules.size() == 13);  // the excluded pooler is among them
  const auto regex = peft::read_adapter_config(test::golden_path("peft/lora_bias_regex"));
  CHECK_FALSE(regex.config.target_modules_is_list);
  CHECK(regex.config.lora_bias);
  CHECK(peft::read_adapter_config(test::golden_path("peft/modules_to_save")).config.bias == peft::LoraBias::kLoraOnly);
  CHECK(peft::is_adapter_directory(test::golden_path("peft/sentence_transformers")));
  CHECK_FALSE(peft::is_adapter_directory(test::golden_path("tiny_bert")));
}

TEST_CASE("features of PEFT that are not there are refused by name; unknown keys are passed over") {
  const test::TemporaryDirectory directory;
  const auto message = [&](const std::string& more) {
    directory.write("adapter_config.json", R"({"peft_type": "LORA", "r": 2)" + more + "}");
    return test::message_of<UserError>([&] { peft::read_adapter_config(directory.path("")); });
  };
  CHECK(message(R"(, "something_new": 3, "layer_replication": null, "use_qalora": false)").empty());
  for (const char* key : {"use_qalora", "fan_in_fan_out", "use_bdlora"}) {
    CHECK(message(std::string(", \"") + key + "\": true").find(std::string(key) + ": this feature") !=
          std::string::npos);
  }
  for (const char* key : {"layer_replication", "target_parameters", "trainable_token_indices"}) {
    CHECK(message(std::string(", \"") + key + "\": [1]").find(std::string(key) + ": this feature") !=
          std::string::npos);
  }
  CHECK(message(R"(, "lora_alpha": "x")").find("lora_alpha") != std::string::npos);
  CHECK(message(R"(, "rank_pattern": {"a": 0})").find("rank_pattern.a") != std::string::npos);
  CHECK(message(R"(, "bias": "some")").find("bias") != std::string::npos);
  CHECK(message(R"(, "lora_dropout": 1)").find("lora_dropout") != std::string::npos);
  for (const char* init : {"pissa", "pissa_niter_16", "olora", "corda", "loftq", "lora_ga", "something_new"}) {
    CHECK(message(std::string(", \"init_lora_weights\": \"") + init + "\"")
              .find("init_lora_weights: \"" + std::string(init)) != std::string::npos);
  }
  for (const char* init : {"true", "false", "null", "\"gaussian\"", "\"eva\"", "\"orthogonal\""}) {
    CHECK(message(std::string(", \"init_lora_weights\": ") + init).empty());
  }
  CHECK(message(R"(, "corda_config": {"a": 1}, "eva_config": {"rho": 2})").empty());
  CHECK(message(R"(, "target_modules": "enc([")").find("target_modules: the regular expression") != std::string::npos);
  CHECK(message(R"(, "rank_pattern": {"a(": 2})").find("rank_pattern: the regular expression") != std::string::npos);
  directory.write("adapter_config.json", R"({"peft_type": "IA3"})");
  CHECK(test::message_of<UserError>([&] { peft::read_adapter_config(directory.path("")); }).find("IA3") !=
        std::string::npos);
}

TEST_CASE("A29: parts of tensors, empty ones and those of another model are refused by name") {
  const test::TemporaryDirectory directory;
  directory.write("adapter_config.json", R"({"peft_type": "LORA", "r": 4, "base_model_name_or_path": "x"})");
  const std::string path = directory.path("adapter_model.safetensors");
  const auto message = [&](const std::vector<io::TensorSpec>& tensors) {
    write_tensors(path, tensors);
    return open_message(directory.path(""));
  };
  CHECK(message(query_of_layer_0({4, 32}, {32, 4})).empty());
  CHECK(message(query_of_layer_0({4, 32}, {0, 4})).find("query.lora_B.weight' has shape [0, 4]") != std::string::npos);
  CHECK(message(query_of_layer_0({2, 32}, {32, 4})).find("one rank's part") != std::string::npos);
  CHECK(message(query_of_layer_0({4, 32}, {16, 4})).find("query.lora_B.weight' is missing or does not have") !=
        std::string::npos);
  auto other = query_of_layer_0({4, 32}, {32, 4});
  other.pop_back();
  CHECK(message(other).find("has no lora_B") != std::string::npos);
  other = query_of_layer_0({4, 32}, {32, 4});
  other.push_back({"base_model.model.layers.0.q_proj.lora_A.weight", io::Dtype::kF32, {4, 32}});
  other.push_back({"base_model.model.layers.0.q_proj.lora_B.weight", io::Dtype::kF32, {32, 4}});
  CHECK(message(other).find("adapts 'layers.0.q_proj'") != std::string::npos);
  other = query_of_layer_0({4, 32}, {32, 4});
  other.push_back({"base_model.model.encoder.layer.0.attention.self.query.lora_C.weight", io::Dtype::kF32, {4}});
  CHECK(message(other).find("lora_C") != std::string::npos);
  other = query_of_layer_0({4, 32}, {32, 4});
  other.push_back({"base_model.model.encoder.layer.0.attention.self.query.lora_B.bias", io::Dtype::kF32, {32}});
  CHECK(message(other).find("has a lora_B.bias, but") != std::string::npos);
  other.pop_back();
  for (const char* name : {"pooler.dense.bias", "pooler.dense.base_layer.bias"}) {
    other.push_back({std::string("base_model.model.") + name, io::Dtype::kF32, {32}});
  }
  CHECK(message(other).find("is there a second time as") != std::string::npos);
  CHECK(message({{"encoder.layer.0.x", io::Dtype::kF32, {4}}}).find("is no tensor of an adapter") != std::string::npos);
  CHECK(message(query_of_layer_0({4}, {32, 4})).find("is not a matrix") != std::string::npos);
  directory.write("adapter_model.safetensors", "not safetensors");
  CHECK_FALSE(open_message(directory.path("")).empty());
  std::filesystem::remove(path);
  CHECK(open_message(directory.path("")).find("has no adapter_model.safetensors") != std::string::npos);
}

TEST_CASE("adapters of models with a head name their modules behind the family's prefix") {
  const test::TemporaryDirectory directory;
  directory.write("adapter_config.json", R"({"peft_type": "LORA", "r": 4})");
  const std::string prefix = "base_model.model.bert.encoder.layer.1.output.dense.";
  write_tensors(directory.path("adapter_model.safetensors"), {{prefix + "lora_A.weight", io::Dtype::kF32, {4, 64}},
                                                              {prefix + "lora_B.weight", io::Dtype::kF32, {32, 4}}});
  const auto loaded = train::load_model(directory.path(""), test::golden_path("tiny_bert"));
  int branches = 0;
  for (const model::Projection& projection : loaded.model->projections()) {
    branches += projection.branch && projection.name == "encoder.layer.1.output.dense" ? 1 : 0;
  }
  CHECK(branches == 1);
}
