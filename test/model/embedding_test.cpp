#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "base/error.h"
#include "base/rng.h"
#include "support/plain_model.h"

using namespace stft;
using model::Layout;
using test::PlainModel;

namespace {

std::vector<std::string> sentences() {
  std::ifstream file(test::golden_path("data/sentences.txt"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  return lines;
}

model::ModelConfig with_pooling(model::PoolingMode mode) {
  model::ModelConfig config;
  config.pooling = {mode};
  return config;
}

void check_against_golden(const PlainModel& plain, const std::string& file, const std::string& name) {
  const at::NoGradGuard no_grad;
  const auto texts = sentences();
  REQUIRE(texts.size() == 200);
  const auto expected = test::read_tensor(test::golden_path(file), name);
  INFO(file << " " << name);
  CHECK(test::max_difference(plain.embed(texts, Layout::kPacked), expected) < 1e-5);
  CHECK(test::max_difference(plain.embed(texts, Layout::kPadded), expected) < 1e-5);
}

}  // namespace

TEST_CASE("embeddings of 200 sentences equal the peer's, packed and padded") {
  check_against_golden(PlainModel(test::minilm_path()), "embeddings_minilm.safetensors", "embeddings");
  const std::string tiny = test::golden_path("tiny_bert");
  check_against_golden(PlainModel(tiny), "embeddings_tiny.safetensors", "mean");
  check_against_golden(PlainModel(tiny, with_pooling(model::PoolingMode::kCls)), "embeddings_tiny.safetensors", "cls");
  check_against_golden(PlainModel(tiny, with_pooling(model::PoolingMode::kMax)), "embeddings_tiny.safetensors", "max");
  model::ModelConfig without_normalize;
  without_normalize.normalize = false;
  check_against_golden(PlainModel(tiny, without_normalize), "embeddings_tiny.safetensors", "mean_without_normalize");
  check_against_golden(PlainModel(test::golden_path("tiny_bert_dense")), "embeddings_tiny.safetensors", "dense");
}

TEST_CASE("a text's vector does not depend on its batch mates") {
  const at::NoGradGuard no_grad;
  const PlainModel plain(test::golden_path("tiny_bert"));
  const auto texts = sentences();
  const auto together = plain.embed(texts, Layout::kPacked);
  for (const size_t i : {size_t{0}, size_t{57}, size_t{199}}) {
    const auto alone = plain.embed({texts[i]}, Layout::kPacked);
    CHECK(test::max_difference(alone[0], together[static_cast<int64_t>(i)]) < 1e-5);
  }
}

TEST_CASE("empty and blank texts give finite vectors") {
  const at::NoGradGuard no_grad;
  const PlainModel plain(test::golden_path("tiny_bert"));
  CHECK(plain.embed({"", "   ", "a word"}, Layout::kPacked).isfinite().all().item<bool>());
}

TEST_CASE("dropout is the same packed, padded and in other company, and does drop") {
  model::ModelConfig config;
  config.dropout = 0.1;
  const PlainModel plain(test::golden_path("tiny_bert"), config);
  const auto texts = sentences();
  const std::vector<std::string> some(texts.begin(), texts.begin() + 40);
  const model::DropoutPlan plan{rng::micro_step_key(7, 3)};
  const auto gradient_of = [&](Layout layout) {
    for (auto& parameter : plain.model->parameters()) {
      parameter.leaf.mutable_grad() = at::Tensor();
    }
    const auto out = plain.embed(some, layout, plan);
    torch::autograd::backward({(out * at::arange(out.numel()).view(out.sizes()).cos()).sum()}, {});
    std::vector<at::Tensor> flat;
    for (const auto& parameter : plain.model->parameters()) {
      flat.push_back(parameter.leaf.grad().reshape({-1}));
    }
    return std::make_pair(out.detach(), at::cat(flat));
  };
  const auto [packed, packed_gradient] = gradient_of(Layout::kPacked);
  const auto [padded, padded_gradient] = gradient_of(Layout::kPadded);
  CHECK(test::max_difference(packed, padded) < 1e-5);
  CHECK((packed_gradient - padded_gradient).norm().item<double>() < 1e-5 * packed_gradient.norm().item<double>());
  CHECK(packed_gradient.norm().item<double>() > 0.1);

  const at::NoGradGuard no_grad;
  const auto fewer = plain.embed({some.begin(), some.begin() + 5}, Layout::kPacked, plan);
  CHECK(test::max_difference(fewer, packed.narrow(0, 0, 5)) < 1e-5);
  CHECK(test::max_difference(plain.embed(some, Layout::kPacked), packed) > 0.01);
  CHECK(test::max_difference(plain.embed(some, Layout::kPacked, model::DropoutPlan{rng::micro_step_key(7, 4)}),
                             packed) > 0.01);
}

TEST_CASE("a parameter that is not filled is never read") {
  const PlainModel plain(test::golden_path("tiny_bert"));
  plain.model->parameters().front().leaf = at::Tensor();
  CHECK_THROWS_AS(plain.embed({"x"}, Layout::kPacked), InternalError);
}
