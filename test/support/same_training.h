// Whole trainings as tests compare them.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "support/run_fixture.h"

namespace stft::test {

struct Trained {
  std::vector<double> losses, norms;  // of each step
  std::vector<at::Tensor> weights;    // whole, in the table's order
  dist::CollectiveCounts last_step;   // this rank's collectives over the world
};

// Collective: every step that the run's loader has, at the recipe's rate.
inline Trained train_all(train::Run& run, train::StepRunner& runner) {
  Trained trained;
  while (const auto step = run.loader->next()) {
    const auto before = run.mesh->world().counts();
    const auto result = runner.run(*step, 1.0);
    trained.losses.push_back(result.loss);
    trained.norms.push_back(result.grad_norm);
    trained.last_step = run.mesh->world().counts() - before;
  }
  for (size_t i = 0; i < run.model->parameters().size(); ++i) {
    trained.weights.push_back(run.engine->gather(static_cast<int64_t>(i)).clone());
  }
  return trained;
}

inline double largest_change(const Trained& trained, const Trained& from) {
  double largest = 0;
  for (size_t i = 0; i < trained.weights.size(); ++i) {
    largest = std::max(largest, max_difference(trained.weights[i], from.weights[i]));
  }
  return largest;
}

// To float32 rounding.
inline void check_same_training(const Trained& found, const Trained& expected) {
  REQUIRE(found.losses.size() == expected.losses.size());
  for (size_t i = 0; i < found.losses.size(); ++i) {
    INFO("step " << i + 1);
    CHECK(found.losses[i] == Approx(expected.losses[i]).epsilon(1e-6));
    CHECK(found.norms[i] == Approx(expected.norms[i]).epsilon(2e-6));
  }
  REQUIRE(found.weights.size() == expected.weights.size());
  CHECK(largest_change(found, expected) < 1e-6);
}

}  // namespace stft::test
