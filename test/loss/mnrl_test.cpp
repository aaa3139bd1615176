#include "loss/mnrl.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>

using stft::loss::MnrlBatch;
using stft::loss::multiple_negatives_ranking;

namespace {

at::Tensor targets(std::vector<int64_t> values) {
  return at::tensor(values, at::kLong);
}

}  // namespace

TEST_CASE("the loss is the cross-entropy of scaled cosines") {
  const auto anchors = at::tensor(std::vector<double>{1, 0, 0, 2}).view({2, 2}).to(at::kFloat);
  const auto candidates = at::tensor(std::vector<double>{3, 0, 1, 1, 0, -1}).view({3, 2}).to(at::kFloat);
  const MnrlBatch batch{anchors, candidates, targets({0, 1}), 2};
  // Cosines: anchor 0: 1, sqrt(1/2), 0; anchor 1: 0, sqrt(1/2), -1.
  const double c = std::sqrt(0.5);
  const double first = std::log(std::exp(2.0) + std::exp(2 * c) + 1) - 2.0;
  const double second = std::log(1 + std::exp(2 * c) + std::exp(-2.0)) - 2 * c;
  CHECK(multiple_negatives_ranking(batch, 2.0).item<double>() == Approx((first + second) / 2).epsilon(1e-6));
}

TEST_CASE("parts of the rows sum to the whole, in value and gradient") {
  at::manual_seed(3);
  const auto anchors = at::randn({5, 8});
  const auto run = [&](std::vector<std::pair<int64_t, int64_t>> parts) {
    auto candidates = at::randn({10, 8});
    candidates.copy_(at::arange(80).view({10, 8}).sin());
    candidates.set_requires_grad(true);
    double sum = 0;
    for (const auto& [first, count] : parts) {
      const MnrlBatch batch{anchors.narrow(0, first, count), candidates, at::arange(first, first + count, at::kLong),
                            5};
      const auto loss = multiple_negatives_ranking(batch, 20.0);
      torch::autograd::backward({loss}, {});
      sum += loss.item<double>();
    }
    return std::make_pair(sum, candidates.grad().clone());
  };
  const auto [whole, whole_gradient] = run({{0, 5}});
  const auto [sum, gradient] = run({{0, 2}, {2, 3}, {5, 0}});
  CHECK(sum == Approx(whole).epsilon(1e-6));
  CHECK((gradient - whole_gradient).abs().max().item<double>() < 1e-6);
  CHECK(whole_gradient.abs().max().item<double>() > 1e-3);
}

TEST_CASE("no rows: zero, with a graph that reaches the candidates") {
  auto candidates = at::randn({4, 3}).set_requires_grad(true);
  const auto loss = multiple_negatives_ranking({at::empty({0, 3}), candidates, targets({}), 7}, 20.0);
  CHECK(loss.item<double>() == 0);
  torch::autograd::backward({loss}, {});
  REQUIRE(candidates.grad().defined());
  CHECK(candidates.grad().abs().max().item<double>() == 0);
}
