#include "model/recompute.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "io/temporary_directory.h"
#include "support/plain_model.h"

using namespace stft;
using model::Layout;
using test::PlainModel;

namespace {

const std::vector<std::string>& kTexts = test::mixed_texts();

struct Gradients {
  std::vector<at::Tensor> outputs;
  std::map<std::string, at::Tensor> by_parameter;  // without an entry: none
};

// Embeds each of `batches`, then runs one backward pass through all of the results.
Gradients gradients_of(const PlainModel& plain, const std::vector<model::TokenBatch>& batches, bool recomputes,
                       std::optional<model::DropoutPlan> dropout) {
  for (auto& parameter : plain.model->parameters()) {
    parameter.leaf.mutable_grad() = at::Tensor();
  }
  Gradients found;
  at::Tensor loss = at::zeros({});
  for (const model::TokenBatch& batch : batches) {
    const auto output = plain.model->embed(batch, {nullptr, dropout, recomputes});
    loss = loss + (output * at::arange(output.numel()).view(output.sizes()).cos()).sum();
    found.outputs.push_back(output.detach());
  }
  torch::autograd::backward({loss}, {});
  for (const auto& parameter : plain.model->parameters()) {
    if (parameter.leaf.grad().defined()) {
      found.by_parameter[parameter.name] = parameter.leaf.grad().clone();
    }
  }
  return found;
}

void check_bitwise_equal(const Gradients& found, const Gradients& expected) {
  for (size_t i = 0; i < expected.outputs.size(); ++i) {
    CHECK(at::equal(found.outputs[i], expected.outputs[i]));
  }
  CHECK(found.by_parameter.size() == expected.by_parameter.size());
  for (const auto& [name, gradient] : expected.by_parameter) {
    INFO(name);
    REQUIRE(found.by_parameter.count(name) == 1);
    CHECK(at::equal(found.by_parameter.at(name), gradient));
  }
}

// Nodes that backward would run through.
size_t graph_size(const at::Tensor& output) {
  std::set<const torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> open{output.grad_fn().get()};
  while (!open.empty()) {
    auto* node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) {
      continue;
    }
    for (const auto& edge : node->next_edges()) {
      open.push_back(edge.function.get());
    }
  }
  return seen.size();
}

model::ModelConfig with_dropout(double dropout) {
  model::ModelConfig config;
  config.dropout = dropout;
  return config;
}

}  // namespace

TEST_CASE("recomputing changes no bit of outputs and gradients") {  // T17, A21
  const model::DropoutPlan plan{rng::micro_step_key(7, 3)};
  for (const std::string name : {"tiny_bert", "tiny_bert_dense"}) {
    const PlainModel plain(test::golden_path(name), with_dropout(0.1));
    for (const Layout layout : {Layout::kPacked, Layout::kPadded}) {
      for (const auto& dropout : {std::optional<model::DropoutPlan>(), std::optional(plan)}) {
        INFO(name << " padded " << (layout == Layout::kPadded) << " dropout " << dropout.has_value());
        const std::vector<model::TokenBatch> batches{plain.batch(kTexts, layout)};
        const Gradients kept = gradients_of(plain, batches, false, dropout);
        CHECK(kept.by_parameter.size() == plain.model->parameters().size());
        // A layer has more than ten nodes, or one.
        CHECK(graph_size(plain.model->embed(batches.front(), {nullptr, dropout, true})) + 2 * 10 <
              graph_size(plain.model->embed(batches.front(), {nullptr, dropout, false})));
        check_bitwise_equal(gradients_of(plain, batches, true, dropout), kept);
      }
    }
  }
}

TEST_CASE("two forward passes before one backward pass, recomputed or not") {  // T30
  const PlainModel plain(test::golden_path("tiny_bert"), with_dropout(0.1));
  const std::vector<model::TokenBatch> batches{plain.batch(kTexts, Layout::kPacked),
                                               plain.batch({"a second tower", "with texts"}, Layout::kPacked)};
  const std::optional<model::DropoutPlan> dropout(model::DropoutPlan{rng::micro_step_key(7, 3)});
  const Gradients kept = gradients_of(plain, batches, false, dropout);
  check_bitwise_equal(gradients_of(plain, batches, true, dropout), kept);
  const Gradients first_only = gradients_of(plain, {batches.front()}, true, dropout);
  CHECK(!at::equal(first_only.by_parameter.begin()->second, kept.by_parameter.begin()->second));
}

TEST_CASE("the gradients of trainable layers above frozen ones survive recomputing") {
  const PlainModel plain(test::golden_path("tiny_bert"));
  const auto freeze = [&](size_t block) {
    for (const int64_t index : plain.model->blocks()[block].parameters) {
      plain.model->parameters()[static_cast<size_t>(index)].leaf.set_requires_grad(false);
    }
  };
  const std::vector<model::TokenBatch> batches{plain.batch(kTexts, Layout::kPacked)};
  size_t expected = plain.model->parameters().size();
  for (const size_t frozen : {size_t{0}, size_t{1}}) {
    freeze(frozen);
    expected -= plain.model->blocks()[frozen].parameters.size();
    const Gradients kept = gradients_of(plain, batches, false, std::nullopt);
    CHECK(kept.by_parameter.size() == expected);
    check_bitwise_equal(gradients_of(plain, batches, true, std::nullopt), kept);
  }
  freeze(2);
  CHECK(!plain.model->embed(batches.front(), {nullptr, std::nullopt, true}).requires_grad());
}

TEST_CASE("the embeddings outlive the batch and the context that they were made from") {
  const PlainModel plain(test::golden_path("tiny_bert"));
  const Gradients expected = gradients_of(plain, {plain.batch(kTexts, Layout::kPadded)}, false, std::nullopt);
  for (auto& parameter : plain.model->parameters()) {
    parameter.leaf.mutable_grad() = at::Tensor();
  }
  auto batch = std::make_unique<model::TokenBatch>(plain.batch(kTexts, Layout::kPadded));
  auto context = std::make_unique<model::ForwardContext>(model::ForwardContext{nullptr, std::nullopt, true});
  const auto output = plain.model->embed(*batch, *context);
  batch.reset();
  context.reset();
  torch::autograd::backward({(output * at::arange(output.numel()).view(output.sizes()).cos()).sum()}, {});
  for (const auto& parameter : plain.model->parameters()) {
    CHECK(at::equal(parameter.leaf.grad(), expected.by_parameter.at(parameter.name)));
  }
}

namespace {

using WeakTensor = c10::weak_intrusive_ptr<at::TensorImpl>;

// weight * tanh(input) + tanh(input): counts its runs and lets its intermediate be watched.
struct Watched {
  at::Tensor weight = at::linspace(1, 2, 6).view({2, 3}).set_requires_grad(true);
  int runs = 0;
  std::vector<WeakTensor> intermediates;

  model::BlockBody body() {
    return [this](const at::Tensor& input) {
      runs += 1;
      const auto middle = at::tanh(input);
      intermediates.emplace_back(middle.getIntrusivePtr());
      return middle * weight + middle;
    };
  }
};

}  // namespace

TEST_CASE("a recomputed body runs twice and keeps nothing between") {
  const auto input = at::linspace(-1, 1, 6).view({2, 3}).set_requires_grad(true);
  Watched kept;
  const auto expected = kept.body()(input);
  CHECK(!kept.intermediates.front().expired());
  torch::autograd::backward({expected.square().sum()}, {});
  const auto input_gradient = std::exchange(input.mutable_grad(), at::Tensor());

  Watched watched;
  const auto output = model::recomputed_in_backward(watched.body(), input, true);
  CHECK(watched.runs == 1);
  CHECK(watched.intermediates.front().expired());
  CHECK(at::equal(output, expected));
  torch::autograd::backward({output.square().sum()}, {});
  CHECK(watched.runs == 2);
  CHECK(watched.intermediates.back().expired());
  CHECK(at::equal(input.grad(), input_gradient));
  CHECK(at::equal(watched.weight.grad(), kept.weight.grad()));
  CHECK_THROWS(torch::autograd::backward({output.sum()}, {}));
}

TEST_CASE("nothing of a recomputed body is left after its graph or its backward pass") {
  const auto owned = std::make_shared<int>(0);
  const auto weight = at::ones({3}).set_requires_grad(true);
  const auto body = [&](const at::Tensor& input) { return input * weight; };
  const auto input_of = [&] { return weight * 2; };
  std::vector<WeakTensor> inputs;
  const auto run = [&] {
    const auto input = input_of();
    inputs.emplace_back(input.getIntrusivePtr());
    return model::recomputed_in_backward([owned, body](const at::Tensor& x) { return body(x); }, input, true);
  };
  {
    const auto output = run();
    CHECK(owned.use_count() == 2);
    CHECK(!inputs.back().expired());
  }
  CHECK(owned.use_count() == 1);
  CHECK(inputs.back().expired());
  const auto output = run();
  torch::autograd::backward({output.sum()}, {});
  CHECK(owned.use_count() == 1);
  CHECK(inputs.back().expired());
}

TEST_CASE("a recomputed body without a gradient to give runs once") {
  Watched watched;
  const auto input = at::ones({2, 3});
  {
    const at::NoGradGuard no_grad;
    CHECK(!model::recomputed_in_backward(watched.body(), input, true).requires_grad());
  }
  watched.weight.set_requires_grad(false);
  CHECK(!model::recomputed_in_backward(watched.body(), input, false).requires_grad());
  CHECK(watched.runs == 2);
}

TEST_CASE("what a body throws when it is recomputed comes out of backward") {
  Watched watched;
  const auto body = watched.body();
  const auto failing = [&](const at::Tensor& input) {
    if (watched.runs == 1) {
      throw UserError("in the recompute");
    }
    return body(input);
  };
  const auto input = at::ones({2, 3}).set_requires_grad(true);
  const auto output = model::recomputed_in_backward(failing, input, true);
  CHECK(test::message_of<UserError>([&] { torch::autograd::backward({output.sum()}, {}); }) == "in the recompute");
  // The next backward pass is not disturbed.
  torch::autograd::backward({(input * 2).sum()}, {});
  CHECK(at::equal(input.grad(), at::full({2, 3}, 2.0)));
}

TEST_CASE("an input changed in place after the forward pass is noticed") {
  Watched watched;
  const auto source = at::ones({2, 3}).set_requires_grad(true);
  auto input = source * 1;
  const auto output = model::recomputed_in_backward(watched.body(), input, true);
  {
    const at::NoGradGuard no_grad;
    input.mul_(2);
  }
  CHECK_THROWS_WITH(torch::autograd::backward({output.sum()}, {}), Catch::Contains("modified by an inplace operation"));
}
