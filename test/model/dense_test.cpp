// Dense modules of every activation and with a residual, against sentence-transformers.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "model/sentence_model.h"
#include "support/family_cases.h"

using namespace stft;

namespace {

struct Variant {
  const char* expected;
  model::DenseActivation activation;
  bool use_residual = false;
  bool is_square = false;
};

// The golden's vectors as rows of a table, a text of one token for each, then the Dense.
at::Tensor output_of(const Variant& variant) {
  const std::string golden = test::golden_path("dense.safetensors");
  const auto input = test::read_tensor(golden, "input");
  model::ModelSpec spec;
  model::ModuleSpec table;
  table.kind = model::ModuleKind::kStaticEmbedding;
  table.table = {input.size(0), input.size(1)};
  model::ModuleSpec dense;
  dense.kind = model::ModuleKind::kDense;
  dense.path = "1_Dense";
  dense.dense = {input.size(1), variant.is_square ? input.size(1) : 3, !variant.is_square, variant.activation,
                 variant.use_residual};
  spec.modules = {table, dense};
  model::SentenceModel model(spec);
  const std::map<std::string, std::string> stored = {{"embedding.weight", "input"},
                                                     {"linear.weight", variant.is_square ? "square_weight" : "weight"},
                                                     {"linear.bias", "bias"},
                                                     {"residual.weight", "residual"}};
  for (model::Parameter& parameter : model.parameters()) {
    parameter.leaf = test::read_tensor(golden, stored.at(parameter.name));
    REQUIRE(parameter.leaf.sizes().vec() == parameter.shape);
  }
  std::vector<std::vector<int32_t>> texts;
  for (int32_t i = 0; i < input.size(0); ++i) {
    texts.push_back({i});
  }
  return model.embed(test::batch_of(texts, model::Layout::kPacked), {});
}

}  // namespace

TEST_CASE("a Dense computes what the peer's does, with every activation and a residual") {
  using model::DenseActivation;
  for (const Variant& variant :
       {Variant{"Tanh", DenseActivation::kTanh}, Variant{"Identity", DenseActivation::kIdentity},
        Variant{"GELU", DenseActivation::kGelu}, Variant{"ReLU", DenseActivation::kRelu},
        Variant{"SiLU", DenseActivation::kSilu}, Variant{"Sigmoid", DenseActivation::kSigmoid},
        Variant{"residual_narrower", DenseActivation::kTanh, true},
        Variant{"residual_same", DenseActivation::kGelu, true, true}}) {
    INFO(variant.expected);
    const auto expected = test::read_tensor(test::golden_path("dense.safetensors"), variant.expected);
    CHECK(test::max_difference(output_of(variant), expected) < 1e-6);
  }
}
