// sentence-transformers' StaticEmbedding.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/error.h"
#include "io/temporary_directory.h"
#include "support/family_model.h"
#include "support/plain_model.h"

using namespace stft;
using Catch::Matchers::Contains;

namespace {

namespace fs = std::filesystem;

// Those of make_static.py; one is empty.
std::vector<std::string> texts() {
  const std::string longest = "the longest of these texts, by a margin, in both words and tokens ";
  return {"one", "a text of some more words", "", "another short one", longest + longest + longest};
}

void copy_model(const std::string& to) {
  fs::copy(test::golden_path("tiny_static"), to, fs::copy_options::recursive);
}

at::Tensor table_of_golden() {
  return test::read_tensor(test::golden_path("tiny_static/model.safetensors"), "embedding.weight");
}

}  // namespace

TEST_CASE("vectors and gradients of a StaticEmbedding equal the peer's, packed and padded") {
  const std::string golden = test::golden_path("static.safetensors");
  for (const model::Layout layout : {model::Layout::kPacked, model::Layout::kPadded}) {
    const test::PlainModel plain(test::golden_path("tiny_static"));
    const auto vectors = plain.embed(texts(), layout);
    CHECK(test::max_difference(vectors.detach(), test::read_tensor(golden, "embeddings")) < 1e-6);
    CHECK(vectors.detach()[2].abs().max().item<double>() == 0);
    const auto scalar = (vectors * at::arange(vectors.numel(), at::kFloat).cos().view(vectors.sizes())).sum();
    torch::autograd::backward({scalar}, {});
    const auto gradient = plain.model->parameters().front().leaf.grad();
    CHECK(test::max_difference(gradient, test::read_tensor(golden, "gradient")) < 1e-6);
  }
}

TEST_CASE("the table's parameter has sentence-transformers' name, and its folder may be any") {
  const test::TemporaryDirectory directory;
  copy_model(directory.path("model"));
  fs::create_directory(directory.path("model/0_StaticEmbedding"));
  for (const char* file : {"model.safetensors", "tokenizer.json"}) {
    fs::rename(directory.path("model/") + file, directory.path("model/0_StaticEmbedding/") + file);
  }
  io::Json modules = io::read_json_file(directory.path("model/modules.json"));
  modules[0]["path"] = "0_StaticEmbedding";
  modules[0]["type"] = "sentence_transformers.models.StaticEmbedding";
  fs::remove(directory.path("model/modules.json"));
  directory.write("model/modules.json", modules.dump());
  const test::PlainModel moved(directory.path("model"));
  const test::PlainModel plain(test::golden_path("tiny_static"));
  CHECK(plain.model->parameters().front().state_path + plain.model->parameters().front().name == "0.embedding.weight");
  CHECK(at::equal(moved.embed(texts(), model::Layout::kPacked), plain.embed(texts(), model::Layout::kPacked)));
}

TEST_CASE("what a StaticEmbedding does not have is refused by name") {
  const auto spec = model::read_model_spec(test::golden_path("tiny_static"));
  model::ModelConfig config;
  config.max_seq_length = 16;
  CHECK_THROWS_WITH(model::with_overrides(spec, config, 1), Contains("model.max_seq_length") && Contains("Static"));
  config = {};
  config.pooling = {model::PoolingMode::kCls};
  CHECK_THROWS_WITH(model::with_overrides(spec, config, 1), Contains("model.pooling"));
  config = {};
  config.include_prompt = false;
  CHECK_THROWS_WITH(model::with_overrides(spec, config, 1), Contains("model.include_prompt"));
  config = {};
  config.dropout = 0.5;
  CHECK_THROWS_WITH(model::with_overrides(spec, config, 1), Contains("model.dropout"));
  config = {};
  config.dense = model::DenseConfig{};
  config.dense->out_features = 5;
  CHECK(model::with_overrides(spec, config, 1).embedding_dim() == 5);
}

TEST_CASE("a model2vec repository: its own config.json and lengths do not count, its key for the table does") {
  const test::TemporaryDirectory directory;
  copy_model(directory.path("model"));
  directory.write("model/config.json", R"({"model_type": "model2vec", "hidden_dim": 8})");
  directory.write("model/sentence_bert_config.json", R"({"max_seq_length": 2})");
  directory.write("model/static_embedding.json", R"({"num_embeddings": 7, "embedding_dim": 8})");
  io::Json modules = io::read_json_file(directory.path("model/modules.json"));
  modules[0]["path"] = ".";
  fs::remove(directory.path("model/modules.json"));
  directory.write("model/modules.json", modules.dump());
  test::write_weights(directory.path("model"), {{"embeddings", table_of_golden()}});
  const test::PlainModel found(directory.path("model"));
  const test::PlainModel expected(test::golden_path("tiny_static"));
  CHECK(at::equal(found.embed(texts(), model::Layout::kPacked), expected.embed(texts(), model::Layout::kPacked)));

  test::write_weights(directory.path("model"), {{"embeddings", table_of_golden()}, {"weights", at::ones({500})}});
  CHECK_THROWS_WITH(model::read_model_spec(directory.path("model")), Contains("'weights'"));
}

TEST_CASE("a list of modules that leads elsewhere or is malformed is refused") {
  for (const char* list : {"[]", "[1]", "[null]", R"([{"type": 5}])",
                           R"([{"type": "sentence_transformers.x.StaticEmbedding", "path": 3}])",
                           R"([{"type": "sentence_transformers.x.StaticEmbedding", "path": "/elsewhere"}])",
                           R"([{"type": "sentence_transformers.x.StaticEmbedding", "path": "a/../.."}])",
                           R"([{"type": "other.StaticEmbedding", "path": ""}])"}) {
    INFO(list);
    const test::TemporaryDirectory own;
    own.write("modules.json", list);
    own.write("config.json", R"({"model_type": "bert"})");
    CHECK_THROWS_AS(model::read_model_spec(own.path("")), UserError);
  }
}

TEST_CASE("a StaticEmbedding's file without a table of two dimensions is refused") {
  const test::TemporaryDirectory directory;
  copy_model(directory.path("model"));
  fs::copy_file(test::golden_path("tiny_bert/model.safetensors"), directory.path("model/model.safetensors"),
                fs::copy_options::overwrite_existing);
  CHECK_THROWS_WITH(model::read_model_spec(directory.path("model")), Contains("embedding.weight"));
}
