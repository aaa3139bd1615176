#include "loss/cosent.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

using stft::loss::cosent;

namespace {

using Numbers = std::vector<double>;

at::Tensor floats(const Numbers& values) {
  return at::tensor(values, at::kDouble).to(at::kFloat);
}

// The definition, pair by pair, in double precision; the greatest exponent is taken out.
struct Expected {
  double loss = 0;
  Numbers gradient;
};

Expected by_hand(const Numbers& scores, const Numbers& labels, double scale) {
  double greatest = 0;
  const auto for_pairs = [&](const auto& visit) {
    for (size_t i = 0; i < scores.size(); ++i) {
      for (size_t k = 0; k < scores.size(); ++k) {
        if (labels[i] > labels[k]) visit(i, k, scale * (scores[k] - scores[i]));
      }
    }
  };
  for_pairs([&](size_t, size_t, double exponent) { greatest = std::max(greatest, exponent); });
  double sum = std::exp(-greatest);
  for_pairs([&](size_t, size_t, double exponent) { sum += std::exp(exponent - greatest); });
  Expected expected{greatest + std::log(sum), Numbers(scores.size(), 0.0)};
  for_pairs([&](size_t i, size_t k, double exponent) {
    const double share = scale * std::exp(exponent - greatest) / sum;
    expected.gradient[k] += share;
    expected.gradient[i] -= share;
  });
  return expected;
}

void check(const Numbers& scores, const Numbers& labels, double scale) {
  const Expected expected = by_hand(scores, labels, scale);
  auto leaf = floats(scores).set_requires_grad(true);
  const auto loss = cosent(leaf, floats(labels), scale);
  REQUIRE(loss.scalar_type() == at::kFloat);
  REQUIRE(loss.dim() == 0);
  CHECK(loss.item<double>() == Approx(expected.loss).epsilon(1e-5).margin(1e-6));
  torch::autograd::backward({loss}, {});
  const auto gradient = leaf.grad();
  for (size_t i = 0; i < scores.size(); ++i) {
    INFO("row " << i);
    CHECK(gradient[static_cast<int64_t>(i)].item<double>() ==
          Approx(expected.gradient[i]).epsilon(1e-4).margin(1e-5 * scale));
  }
}

}  // namespace

TEST_CASE("two rows: the logistic loss of their difference") {
  const auto loss = cosent(floats({0.25, 0.75}), floats({1, 0}), 2.0);
  CHECK(loss.item<double>() == Approx(std::log(1 + std::exp(2 * 0.5))).epsilon(1e-6));
  CHECK(cosent(floats({0.25, 0.75}), floats({0, 1}), 2.0).item<double>() ==
        Approx(std::log(1 + std::exp(-2 * 0.5))).epsilon(1e-6));
}

TEST_CASE("value and gradient are those of the sum over ordered pairs") {
  check({0.9, 0.1, 0.5, -0.3}, {1, 0.2, 0.6, 0}, 20);
  check({-0.9, 0.1, 0.5, 0.3}, {1, 0.2, 0.6, 0}, 20);
  check({0.3, 0.1}, {5, -5}, 1);
}

TEST_CASE("equal labels order nothing") {
  check({0.9, 0.1, 0.5, -0.3, 0.2, 0.7}, {1, 0, 1, 0, 0.5, 1}, 20);
  check({0.1, 0.2, 0.3, 0.4}, {0, 0, 1, 1}, 20);
  check({0.1, 0.2, 0.3}, {0, -0.0, 1}, 20);
}

TEST_CASE("no ordered pair: exactly zero, with a zero gradient") {
  for (const Numbers& scores : {Numbers{0.5}, Numbers{0.5, -1, 1, 0.25}}) {
    auto leaf = floats(scores).set_requires_grad(true);
    const auto loss = cosent(leaf, at::full({static_cast<int64_t>(scores.size())}, 0.5), 1000.0);
    CHECK(loss.item<double>() == 0);
    torch::autograd::backward({loss}, {});
    REQUIRE(leaf.grad().defined());
    CHECK(leaf.grad().abs().max().item<double>() == 0);
  }
}

TEST_CASE("extreme scores stay finite") {
  check({1, -1, 1, -1}, {0, 1, 0, 1}, 1000);  // every pair wrong: about 2000
  check({-1, 1, -1, 1}, {0, 1, 0, 1}, 1000);  // every pair right: about 0
  check({1, -1, 0.5, -0.5, 0}, {0, 1, 0.5, 0.5, 1}, 1000);
  CHECK(cosent(floats({1, -1}), floats({0, 1}), 1000).item<double>() == Approx(2000));
}

TEST_CASE("many rows with many ties, in any order") {
  Numbers scores, labels;
  for (int i = 0; i < 300; ++i) {
    scores.push_back(std::sin(1.7 * i));
    labels.push_back(std::floor(5 * std::cos(2.3 * i)) / 5);
  }
  check(scores, labels, 20);
  // Its cost is not that of a matrix of rows by rows, which would take 40 GB here.
  const auto loss = cosent(at::arange(100000).sin(), at::arange(100000).cos(), 20.0);
  CHECK(std::isfinite(loss.item<double>()));
}
