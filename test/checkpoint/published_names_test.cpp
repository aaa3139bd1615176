// Files of families whose authors published them under other names than transformers has.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "checkpoint/model_files.h"
#include "checkpoint/pretrained.h"
#include "io/temporary_directory.h"
#include "shard/shard_layout.h"
#include "support/family_cases.h"
#include "support/family_model.h"
#include "support/published_model.h"

using namespace stft;
using Catch::Matchers::Contains;

namespace {

model::SentenceModel model_in(const std::string& directory) {
  return model::SentenceModel(model::with_overrides(model::read_model_spec(directory), {}, 1));
}

}  // namespace

TEST_CASE("published names of tensors, fused projections among them, are the encoder's parameters") {
  for (const char* family : {"gte", "nomic_bert"}) {
    INFO(family);
    const test::FamilyGolden golden(family);
    const test::TemporaryDirectory directory;
    test::write_published(directory.path("model"), golden, golden.json.at("cases").at(0).at("config"),
                          {.beside = {{"classifier.fc2.weight", at::ones({2})}, {"head_new.weight", at::ones({3})}}});
    const model::SentenceModel model = model_in(directory.path("model"));
    const auto weights = checkpoint::PretrainedWeights::open(model);
    CHECK(weights.unused() == std::vector<std::string>{"classifier.fc2.weight", "head_new.weight"});
    for (const model::Parameter& parameter : model.parameters()) {
      INFO(parameter.name);
      const auto expected = test::read_tensor(golden.tensors, "weights/" + parameter.name);
      const auto whole = at::empty(parameter.shape);
      weights.source()(parameter, shard::shard_layout(parameter.shape, 0, 1), whole.view({-1}));
      CHECK(at::equal(whole, expected));
      // The second of two ranks reads rows within a part of a fused tensor.
      const auto layout = shard::shard_layout(parameter.shape, 1, 2);
      auto rows = at::empty({layout.own_numel()});
      weights.source()(parameter, layout, rows);
      CHECK(at::equal(rows, expected.view({-1}).slice(0, layout.first_row * layout.row_numel)));
    }
  }
}

TEST_CASE("a fused tensor that cannot be divided is named by what is missing") {
  const test::FamilyGolden golden("nomic_bert");
  const test::TemporaryDirectory directory;
  test::write_published(directory.path("model"), golden, golden.json.at("cases").at(0).at("config"),
                        {.without_a_row = "encoder.layers.1.attn.Wqkv.weight"});
  const model::SentenceModel model = model_in(directory.path("model"));
  CHECK_THROWS_WITH(checkpoint::PretrainedWeights::open(model),
                    Contains("layers.1.self_attn.q_proj.weight' is missing") && !Contains("layers.0"));
}

TEST_CASE("NomicBERT's first configuration has GPT-2's names") {
  const test::FamilyGolden golden("nomic_bert");
  io::Json config = golden.json.at("cases").at(0).at("config");
  for (const auto& [older, current] : std::map<std::string, std::string>{{"n_embd", "hidden_size"},
                                                                         {"n_layer", "num_hidden_layers"},
                                                                         {"n_head", "num_attention_heads"},
                                                                         {"n_inner", "intermediate_size"},
                                                                         {"n_positions", "max_position_embeddings"},
                                                                         {"layer_norm_epsilon", "layer_norm_eps"}}) {
    config[older] = config.at(current);
    config.erase(current);
  }
  config["activation_function"] = "swiglu";
  config.erase("hidden_act");
  const test::TemporaryDirectory directory;
  test::write_published(directory.path("model"), golden, config);
  const model::SentenceModel model = model_in(directory.path("model"));
  CHECK(checkpoint::PretrainedWeights::open(model).sources().size() == model.parameters().size());
  CHECK(model.encoder().max_positions() == 32);

  // What is written has the names that transformers reads, and no code that would read others.
  config["auto_map"] = {{"AutoModel", "modeling.NomicBertModel"}};
  test::write_model_directory(directory.path("published"), config);
  std::filesystem::create_directories(directory.path("written"));
  checkpoint::write_model_files(model::read_model_spec(directory.path("published")), directory.path("written"));
  const io::Json written = io::read_json_file(directory.path("written/config.json"));
  CHECK(written.at("hidden_size") == 16);
  CHECK(written.at("hidden_act") == "silu");
  CHECK_FALSE(written.contains("auto_map"));

  config["prenorm"] = true;
  test::write_model_directory(directory.path("prenorm"), config);
  CHECK_THROWS_WITH(model_in(directory.path("prenorm")), Contains("prenorm"));
}
