// What two runs of the same training must agree in. `Outcome` has losses, norms and weights.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>

#include "support/golden.h"

namespace stft::test {

template <typename Outcome>
double largest_change(const Outcome& outcome, const Outcome& from) {
  double largest = 0;
  for (size_t i = 0; i < outcome.weights.size(); ++i) {
    largest = std::max(largest, max_difference(outcome.weights[i], from.weights[i]));
  }
  return largest;
}

// To float32 rounding.
template <typename Outcome>
void check_same_training(const Outcome& found, const Outcome& expected) {
  REQUIRE(found.losses.size() == expected.losses.size());
  for (size_t i = 0; i < found.losses.size(); ++i) {
    INFO("step " << i + 1);
    CHECK(found.losses[i] == Approx(expected.losses[i]).epsilon(1e-6));
    CHECK(found.norms[i] == Approx(expected.norms[i]).epsilon(2e-6));
  }
  CHECK(largest_change(found, expected) < 1e-6);
}

}  // namespace stft::test
