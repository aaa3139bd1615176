// Models whose leaves are bf16.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/rng.h"
#include "model/pooling.h"
#include "support/plain_model.h"

using namespace stft;
using model::Layout;
using test::PlainModel;

namespace {

const std::vector<std::string>& kTexts = test::mixed_texts();

void make_bf16(const PlainModel& plain) {
  for (auto& parameter : plain.model->parameters()) {
    parameter.leaf = parameter.leaf.detach().to(at::kBFloat16).set_requires_grad(true);
  }
}

at::Tensor flat_gradient(const PlainModel& plain, const at::Tensor& embeddings) {
  torch::autograd::backward({(embeddings * at::arange(embeddings.numel()).view(embeddings.sizes()).cos()).sum()}, {});
  std::vector<at::Tensor> parts;
  for (const auto& parameter : plain.model->parameters()) {
    CHECK(parameter.leaf.grad().scalar_type() == parameter.leaf.scalar_type());
    parts.push_back(parameter.leaf.grad().reshape({-1}).to(at::kFloat));
  }
  return at::cat(parts);
}

struct Subject {
  std::string directory;
  model::ModelConfig config;
  double gradient_tolerance = 2.5e-2;
};

void check_close(const Subject& subject, Layout layout, std::optional<model::DropoutPlan> dropout) {
  INFO(subject.directory << " of " << subject.config.pooling.size() << " poolings");
  const PlainModel exact(subject.directory, subject.config);
  const PlainModel reduced(subject.directory, subject.config);
  make_bf16(reduced);
  const auto batch = exact.batch(kTexts, layout);
  const auto expected = exact.model->embed(batch, {nullptr, dropout});
  const auto found = reduced.model->embed(batch, {nullptr, dropout});
  CHECK(found.scalar_type() == at::kFloat);
  CHECK(test::max_difference(found, expected) < 2e-2);
  CHECK(test::max_difference(found, expected) > 1e-5);
  CHECK(at::cosine_similarity(found, expected).min().item<double>() > 0.999);
  // The vectors have their length in fp32, not in bf16.
  CHECK(test::max_difference(found.norm(2, {1}), at::ones({found.size(0)})) < 1e-6);

  const auto expected_gradient = flat_gradient(exact, expected);
  const auto gradient = flat_gradient(reduced, found);
  CHECK(gradient.isfinite().all().item<bool>());
  const double distance = (gradient - expected_gradient).norm().item<double>();
  CHECK(distance < subject.gradient_tolerance * expected_gradient.norm().item<double>());
}

// Sees every tensor that goes from block to block.
class DtypeObserver final : public model::BlockObserver {
 public:
  std::vector<at::ScalarType> outputs;
  at::Tensor before_block(int64_t, at::Tensor input) override { return input; }
  at::Tensor after_block(int64_t, at::Tensor output) override {
    outputs.push_back(output.scalar_type());
    return output;
  }
};

}  // namespace

TEST_CASE("a bf16 model is near its fp32 twin, forward and backward") {
  const std::vector<std::optional<model::DropoutPlan>> plans{std::nullopt,
                                                             model::DropoutPlan{rng::micro_step_key(7, 3)}};
  for (const Layout layout : {Layout::kPacked, Layout::kPadded}) {
    for (const auto& plan : plans) {
      INFO("padded " << (layout == Layout::kPadded) << " dropout " << plan.has_value());
      model::ModelConfig config;
      config.dropout = 0.1;
      check_close({test::golden_path("tiny_bert"), config}, layout, plan);
      check_close({test::golden_path("tiny_bert_dense"), config}, layout, plan);
      config.pooling = {model::PoolingMode::kCls};
      check_close({test::golden_path("tiny_bert"), config}, layout, plan);
      // Where two tokens are within a rounding of the largest, the gradient goes another way.
      config.pooling = {model::PoolingMode::kCls, model::PoolingMode::kMax};
      check_close({test::golden_path("tiny_bert"), config, 0.15}, layout, plan);
    }
  }
}

TEST_CASE("token vectors stay bf16 from block to block, dropout included") {
  model::ModelConfig config;
  config.dropout = 0.1;
  const PlainModel plain(test::golden_path("tiny_bert"), config);
  make_bf16(plain);
  for (const auto& plan : {std::optional<model::DropoutPlan>(), std::optional(model::DropoutPlan{})}) {
    DtypeObserver observer;
    const auto vectors = plain.model->embed(plain.batch(kTexts, Layout::kPacked), {&observer, plan});
    CHECK(vectors.scalar_type() == at::kFloat);
    CHECK(observer.outputs == std::vector<at::ScalarType>(3, at::kBFloat16));
  }
}

TEST_CASE("pooling sums in fp32: a long text's mean is not rounded on the way") {
  const int64_t length = 1000;
  const std::vector<int32_t> ids(length, 1);
  const auto batch =
      model::make_token_batch(ids, std::vector<int64_t>{0, length}, std::vector<model::TextKey>(1), Layout::kPadded);
  const auto hidden = (at::arange(length * 4).view({length, 4}) * 0.37).sin().add(3).to(at::kBFloat16);
  const auto pooled = model::pool(hidden, batch, {model::PoolingMode::kMean});
  CHECK(pooled.scalar_type() == at::kFloat);
  const auto exact = hidden.to(at::kDouble).mean(0, true);
  CHECK(test::max_difference(pooled.to(at::kDouble), exact) < 1e-5);
}

TEST_CASE("recomputing changes no bit of a bf16 model either") {
  model::ModelConfig config;
  config.dropout = 0.1;
  const PlainModel plain(test::golden_path("tiny_bert"), config);
  make_bf16(plain);
  const auto batch = plain.batch(kTexts, Layout::kPacked);
  const model::DropoutPlan plan{rng::micro_step_key(7, 3)};
  const auto kept = plain.model->embed(batch, {nullptr, plan, false});
  const auto expected = flat_gradient(plain, kept);
  for (auto& parameter : plain.model->parameters()) {
    parameter.leaf.mutable_grad() = at::Tensor();
  }
  const auto recomputed = plain.model->embed(batch, {nullptr, plan, true});
  CHECK(at::equal(recomputed, kept));
  CHECK(at::equal(flat_gradient(plain, recomputed), expected));
}
