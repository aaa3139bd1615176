#include "model/model_spec.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "io/temporary_directory.h"
#include "support/golden.h"

using namespace stft;
using namespace stft::model;

TEST_CASE("both layouts of sentence-transformers are read") {
  const auto legacy = read_model_spec(test::golden_path("tiny_bert"));
  REQUIRE(legacy.modules.size() == 3);
  CHECK((legacy.modules[1].pooling == std::vector<PoolingMode>{PoolingMode::kMean}));
  CHECK(legacy.modules[2].kind == ModuleKind::kNormalize);
  CHECK(legacy.max_seq_length == 32);
  CHECK(legacy.embedding_dim() == 32);
  const auto current = read_model_spec(test::golden_path("tiny_bert_dense"));
  REQUIRE(current.modules.size() == 4);
  CHECK(current.modules[2].dense.out_features == 16);
  CHECK(current.modules[2].dense.activation == DenseActivation::kTanh);
  CHECK(current.embedding_dim() == 16);
  CHECK(current.find(ModuleKind::kDense)->path == "2_Dense");
}

TEST_CASE("overrides change the chain") {
  const auto spec = read_model_spec(test::golden_path("tiny_bert"));
  ModelConfig config;
  config.pooling = {PoolingMode::kCls, PoolingMode::kMean};
  config.dense = DenseConfig{8, DenseActivation::kIdentity, false};
  config.prompts = {{"query", "q: "}};
  config.similarity_fn_name = Similarity::kDot;
  const auto changed = with_overrides(spec, config, 1);
  CHECK(changed.embedding_dim() == 8);
  REQUIRE(changed.modules.size() == 4);
  CHECK(changed.modules[2].dense.in_features == 64);
  CHECK(changed.modules[3].kind == ModuleKind::kNormalize);
  CHECK(changed.prompts.at("query") == "q: ");
  CHECK(changed.similarity == Similarity::kDot);
  config.normalize = false;
  CHECK(with_overrides(spec, config, 1).find(ModuleKind::kNormalize) == nullptr);
}

TEST_CASE("what is not available or does not fit is named") {
  const test::TemporaryDirectory directory;
  const auto write = [&](const std::string& name, const std::string& text) { directory.write(name, text); };
  const auto message = [&] { return test::message_of<UserError>([&] { read_model_spec(directory.path("")); }); };
  CHECK_THAT(message(), Catch::Contains("config.json"));
  write("config.json", R"({"model_type": "bert", "hidden_size": 32})");
  write("modules.json", R"([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_X", "type": "sentence_transformers.models.WeightedLayerPooling"}])");
  CHECK_THAT(message(), Catch::Contains("'WeightedLayerPooling' is not available yet"));
  write("modules.json", R"([{"type": "evil.module.Transformer"}])");
  CHECK_THAT(message(), Catch::Contains("evil.module.Transformer"));
  write("modules.json", R"([{"type": "sentence_transformers.models.Pooling", "path": "../../etc"}])");
  CHECK_THAT(message(), Catch::Contains("leaves the model directory"));
  write("modules.json", R"([{"type": "sentence_transformers.models.Transformer"}])");
  CHECK_THAT(message(), Catch::Contains("a Transformer and a Pooling"));
}
