// Models that come in other forms than the goldens: half-precision weights, family prefixes, plain directories.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/error.h"
#include "checkpoint/export_model.h"
#include "io/file.h"
#include "io/temporary_directory.h"
#include "support/run_fixture.h"

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
