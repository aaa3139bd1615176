// Files of families whose authors published them under other names than transformers has.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "checkpoint/pretrained.h"
#include "io/temporary_directory.h"
#include "shard/shard_layout.h"
#include "support/family_cases.h"
#include "support/family_model.h"

using namespace stft;
using Catch::Matchers::Contains;

namespace {

// The golden's published tensors in a model directory; `without_a_row` is cut.
void write_published(const std::string& directory, const test::FamilyGolden& golden, const io::Json& config,
                     const std::string& without_a_row = "") {
  test::write_model_directory(directory, config);
  const auto file = io::SafetensorsFile::open(golden.tensors);
  std::vector<test::NamedTensor> tensors;
  for (const auto& info : file.tensors()) {
    if (info.name.starts_with("published/")) {
      const std::string name = info.name.substr(std::string("published/").size());
      const auto value = test::read_tensor(golden.tensors, info.name);
      tensors.push_back({name, name == without_a_row ? value.narrow(0, 1, value.size(0) - 1) : value});
    }
  }
  REQUIRE(!tensors.empty());
  test::write_weights(directory, tensors);
}

model::SentenceModel model_in(const std::string& directory) {
  return model::SentenceModel(model::with_overrides(model::read_model_spec(directory), {}, 1));
}

}  // namespace

TEST_CASE("published names of tensors, fused projections among them, are the encoder's parameters") {
  for (const char* family : {"gte", "nomic_bert"}) {
    INFO(family);
    const test::FamilyGolden golden(family);
    const test::TemporaryDirectory directory;
    write_published(directory.path("model"), golden, golden.json.at("cases").at(0).at("config"));
    const model::SentenceModel model = model_in(directory.path("model"));
    const auto weights = checkpoint::PretrainedWeights::open(model);
    CHECK(weights.unused().empty());
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
  write_published(directory.path("model"), golden, golden.json.at("cases").at(0).at("config"),
                  "encoder.layers.1.attn.Wqkv.weight");
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
  write_published(directory.path("model"), golden, config);
  const model::SentenceModel model = model_in(directory.path("model"));
  CHECK(checkpoint::PretrainedWeights::open(model).sources().size() == model.parameters().size());
  CHECK(model.encoder().max_positions() == 32);

  config["prenorm"] = true;
  test::write_model_directory(directory.path("prenorm"), config);
  CHECK_THROWS_WITH(model_in(directory.path("prenorm")), Contains("prenorm"));
}
