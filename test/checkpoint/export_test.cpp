// Models that come in other forms than the goldens: half-precision weights, family prefixes, plain directories.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/error.h"
#include "checkpoint/export_model.h"
#include "io/file.h"
#include "io/json.h"
#include "io/temporary_directory.h"
#include "support/run_fixture.h"
#include "tokenizer/tokenizer.h"

using namespace stft;

namespace {

namespace fs = std::filesystem;

// Copies tiny_bert's files named in `files` and writes its weights with names and types changed.
void write_model(const std::string& directory, const std::vector<std::string>& files, io::Dtype dtype,
                 const std::string& prefix, const std::string& without = "") {
  fs::create_directories(directory);
  for (const std::string& file : files) {
    fs::copy(test::golden_path("tiny_bert/" + file), fs::path(directory) / file, fs::copy_options::recursive);
  }
  const auto source = io::SafetensorsFile::open(test::golden_path("tiny_bert/model.safetensors"));
  std::vector<io::TensorSpec> specs;
  for (const auto& info : source.tensors()) {
    if (info.name != without) {
      specs.push_back({prefix + info.name, info.dtype == io::Dtype::kF32 ? dtype : info.dtype, info.shape});
    }
  }
  io::SafetensorsWriter writer((fs::path(directory) / "model.safetensors").string(), specs, {{"format", "pt"}});
  for (const auto& target : writer.layout()) {
    const io::TensorInfo* info = source.find(target.name.substr(prefix.size()));
    if (info->dtype == io::Dtype::kF32) {
      auto values = at::empty(info->shape, at::kFloat);
      checkpoint::read_as_float(source.bytes(*info), info->dtype, values.view({-1}));
      writer.append(checkpoint::write_as(values, target.dtype));
    } else {
      writer.append(source.bytes(*info));
    }
  }
  writer.finish();
}

const std::vector<std::string> kAllFiles = {
    "config.json", "modules.json", "1_Pooling", "sentence_bert_config.json", "tokenizer.json", "tokenizer_config.json"};
const std::vector<std::string> kPlainFiles = {"config.json", "tokenizer.json", "tokenizer_config.json"};

std::unique_ptr<train::Run> assemble(const std::string& model) {
  auto recipe = test::tiny_recipe();
  recipe.model.name_or_path = model;
  return test::assemble_on(dist::ProcessGroup::single(), recipe, shard::Strategy::kFullShard);
}

void export_to(train::Run& run, const std::string& directory) {
  checkpoint::export_model({*run.model, *run.weights, *run.engine, run.mesh->world()}, directory);
}

}  // namespace

TEST_CASE("half-precision weights and prefixed names come out as they went in") {
  for (const auto dtype : {io::Dtype::kBF16, io::Dtype::kF16, io::Dtype::kF32}) {
    for (const std::string prefix : {"", "bert."}) {
      const test::TemporaryDirectory directory;
      write_model(directory.path("in"), kAllFiles, dtype, prefix);
      auto run = assemble(directory.path("in"));
      export_to(*run, directory.path("out"));
      CHECK(io::read_text_file(directory.path("out/model.safetensors")) ==
            io::read_text_file(directory.path("in/model.safetensors")));
    }
  }
}

TEST_CASE("a plain directory gets mean pooling, and its export the files that say so") {
  const test::TemporaryDirectory directory;
  write_model(directory.path("in"), kPlainFiles, io::Dtype::kF32, "");
  auto run = assemble(directory.path("in"));
  REQUIRE(run->model->spec().modules.size() == 2);
  CHECK((run->model->spec().modules[1].pooling == std::vector<model::PoolingMode>{model::PoolingMode::kMean}));
  export_to(*run, directory.path("out"));
  for (const char* file : {"modules.json", "1_Pooling/config.json", "sentence_bert_config.json",
                           "config_sentence_transformers.json", "config.json", "tokenizer.json"}) {
    INFO(file);
    CHECK(fs::is_regular_file(directory.path(std::string("out/") + file)));
  }
  CHECK(assemble(directory.path("out"))->model->spec().modules.size() == 2);
}

TEST_CASE("weights in other formats do not travel with the trained ones") {
  const test::TemporaryDirectory directory;
  write_model(directory.path("in"), kAllFiles, io::Dtype::kF32, "");
  fs::create_directories(directory.path("in/onnx"));
  for (const char* file : {"in/pytorch_model.bin", "in/onnx/model.onnx", "in/README.md"}) {
    directory.write(file, "old");
  }
  auto run = assemble(directory.path("in"));
  export_to(*run, directory.path("out"));
  CHECK_FALSE(fs::exists(directory.path("out/pytorch_model.bin")));
  CHECK_FALSE(fs::exists(directory.path("out/onnx")));
  CHECK(io::read_text_file(directory.path("out/README.md")) == "old");
}

TEST_CASE("every missing tensor is named") {
  const test::TemporaryDirectory directory;
  write_model(directory.path("in"), kAllFiles, io::Dtype::kF32, "", "encoder.layer.1.output.dense.bias");
  const auto message = test::message_of<UserError>([&] { assemble(directory.path("in")); });
  CHECK_THAT(message, Catch::Contains("'encoder.layer.1.output.dense.bias' is missing"));
  CHECK_THAT(message, Catch::Contains("in/model.safetensors"));
}

namespace {

// The tokenizer files of a model directory, in four kinds.
void write_tokenizer(const std::string& kind, const test::TemporaryDirectory& directory) {
  const auto copy = [&](const std::string& source, const std::string& name) {
    fs::copy(test::golden_path("tokenizer/sources/" + source), directory.path("in/" + name));
  };
  auto tokenizer = io::read_json_file(test::golden_path("tiny_bert/tokenizer.json"));
  if (kind == "tokenizer.json adds no end, its neighbour asks for one") {
    tokenizer["post_processor"]["single"].erase(2);
    directory.write("in/tokenizer.json", tokenizer.dump());
    directory.write("in/tokenizer_config.json",
                    R"({"tokenizer_class": "PreTrainedTokenizerFast", "add_eos_token": true, "eos_token": "[SEP]",
                        "pad_token": "[SEP]", "truncation_side": "left", "model_max_length": 6})");
    directory.write("in/sentence_bert_config.json", R"({"do_lower_case": true})");
  } else if (kind == "vocab.txt") {
    std::vector<std::string> tokens(tokenizer["model"]["vocab"].size());
    for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) {
      tokens.at(id.get<std::size_t>()) = token;
    }
    std::string lines;
    for (const std::string& token : tokens) {
      lines += token + "\n";
    }
    directory.write("in/vocab.txt", lines);
    directory.write("in/added_tokens.json", io::Json{{tokens.back(), tokens.size() - 1}}.dump());
  } else {
    copy(kind + "/" + (kind == "t5" ? "spiece.model" : "sentencepiece.bpe.model"),
         kind == "t5" ? "spiece.model" : "sentencepiece.bpe.model");
    directory.write("in/tokenizer_config.json", kind == "t5" ? R"({"tokenizer_class": "T5Tokenizer"})"
                                                             : R"({"tokenizer_class": "XLMRobertaTokenizer"})");
  }
}

}  // namespace

TEST_CASE("an export gives the ids that its model gave, whatever the tokenizer's files") {
  for (const std::string kind : {"tokenizer.json adds no end, its neighbour asks for one", "vocab.txt", "t5", "xlmr"}) {
    INFO(kind);
    const test::TemporaryDirectory directory;
    write_model(directory.path("in"), {"config.json"}, io::Dtype::kF32, "");
    write_tokenizer(kind, directory);
    auto run = assemble(directory.path("in"));
    export_to(*run, directory.path("out"));
    const auto before = tokenizer::Tokenizer::load(directory.path("in"));
    const auto after = tokenizer::Tokenizer::load(directory.path("out"));
    for (const char* text : {"", "A tree is a PLANT, they say.", "  two   blanks <mask> [SEP] tree"}) {
      CHECK(before.encode_ids(text, 0) == after.encode_ids(text, 0));
      CHECK(before.encode_ids(text, 5) == after.encode_ids(text, 5));
    }
    CHECK(before.policy().warnings.size() == after.policy().warnings.size());
    CHECK(before.policy().adds_eos == after.policy().adds_eos);
    CHECK(assemble(directory.path("out"))->model->max_seq_length() == run->model->max_seq_length());
  }
}
