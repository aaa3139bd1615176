// AdamW with states of 8 bits: against bitsandbytes and against states of 32 bits.
#include "quant/bnb_adam8bit.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "quant/nf4_golden.h"

namespace {

using namespace stft;
using namespace stft::quant;

struct State {
  std::vector<std::uint8_t> m_codes;
  std::vector<std::uint8_t> v_codes;
  std::vector<float> m_absmax;
  std::vector<float> v_absmax;

  explicit State(std::size_t count)
      : m_codes(count), v_codes(count), m_absmax((count + 255) / 256), v_absmax(m_absmax.size()) {}
  Adam8bitState view() { return {{m_codes, m_absmax}, {v_codes, v_absmax}}; }
};

// 32-bit AdamW in double.
struct Reference {
  std::vector<double> m;
  std::vector<double> v;

  explicit Reference(std::size_t count) : m(count), v(count) {}
  void step(const Adam8bitOptions& o, std::vector<double>& parameters, const std::vector<double>& gradients) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * gradients[i];
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * gradients[i] * gradients[i];
      const double root = std::sqrt(v[i] / (1 - std::pow(o.beta2, o.step))) + o.eps;
      parameters[i] *= 1 - o.learning_rate * o.weight_decay;
      parameters[i] -= o.learning_rate / (1 - std::pow(o.beta1, o.step)) * m[i] / root;
    }
  }
};

double rms_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return std::sqrt(sum / static_cast<double>(a.size()));
}

TEST_CASE("steps go where those of bitsandbytes go") {
  const auto file = io::SafetensorsFile::open(test::nf4_golden("adam8bit.safetensors"));
  const auto start = test::read_values<float>(file, "start");
  const auto target = test::read_values<float>(file, "target");
  std::vector<float> parameters = start;
  State state(parameters.size());
  Adam8bitOptions options = {.learning_rate = 1e-2, .weight_decay = 0.01};
  std::vector<float> gradients(parameters.size());
  for (options.step = 1; options.step <= 50; ++options.step) {
    std::transform(parameters.begin(), parameters.end(), target.begin(), gradients.begin(), std::minus<>());
    REQUIRE(adam8bit_step(options, state.view(), parameters, gradients));
    if (options.step == 1) {  // the state is not read yet: fp32 rounding apart
      const auto expected = test::read_values<float>(file, "parameter.1");
      for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(parameters[i] == Approx(expected[i]).margin(2e-8).epsilon(1e-6));
      }
    }
  }
  const auto expected = test::read_values<float>(file, "parameter.50");
  const double moved = rms_difference(expected, start);
  INFO("difference " << rms_difference(parameters, expected) << " of " << moved);
  CHECK(rms_difference(parameters, expected) < 0.02 * moved);
}

TEST_CASE("the error against 32-bit Adam is small on a toy problem") {
  // Linear regression of 512 weights from noisy rows: 300 steps of batches of 16, both with the same batches.
  constexpr std::size_t kCount = 512;
  std::mt19937 random(20260310);
  std::normal_distribution<double> normal(0, 1);
  std::vector<double> truth(kCount);
  std::generate(truth.begin(), truth.end(), [&] { return normal(random); });
  std::vector<float> ours(kCount, 0.0F);
  std::vector<double> exact(kCount, 0.0);
  State state(kCount);
  Reference reference(kCount);
  Adam8bitOptions options = {.learning_rate = 3e-2, .weight_decay = 0.01};
  for (options.step = 1; options.step <= 300; ++options.step) {
    std::vector<double> our_gradients(kCount);
    std::vector<double> exact_gradients(kCount);
    for (int row = 0; row < 16; ++row) {
      std::vector<double> x(kCount);
      std::generate(x.begin(), x.end(), [&] { return normal(random); });
      const double y = std::inner_product(x.begin(), x.end(), truth.begin(), 0.1 * normal(random));
      const double our_residual = std::inner_product(x.begin(), x.end(), ours.begin(), -y);
      const double exact_residual = std::inner_product(x.begin(), x.end(), exact.begin(), -y);
      for (std::size_t i = 0; i < kCount; ++i) {
        our_gradients[i] += our_residual * x[i] / 16;
        exact_gradients[i] += exact_residual * x[i] / 16;
      }
    }
    const std::vector<float> gradients(our_gradients.begin(), our_gradients.end());
    REQUIRE(adam8bit_step(options, state.view(), ours, gradients));
    reference.step(options, exact, exact_gradients);
  }
  double difference = 0;
  double size = 0;
  double our_error = 0;
  double exact_error = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    difference += (ours[i] - exact[i]) * (ours[i] - exact[i]);
    size += exact[i] * exact[i];
    our_error += (ours[i] - truth[i]) * (ours[i] - truth[i]);
    exact_error += (exact[i] - truth[i]) * (exact[i] - truth[i]);
  }
  INFO("difference " << std::sqrt(difference / size) << " of the weights; distance to the truth "
                     << std::sqrt(our_error) << ", of 32 bits " << std::sqrt(exact_error));
  CHECK(std::sqrt(difference / size) < 0.02);
  CHECK(std::sqrt(our_error) < 1.05 * std::sqrt(exact_error));
  CHECK(std::sqrt(difference) > 0);
}

TEST_CASE("any split by whole blocks gives the same bits") {
  std::mt19937 random(20260311);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> whole(700);
  std::generate(whole.begin(), whole.end(), [&] { return normal(random); });
  std::vector<float> split = whole;
  State whole_state(700);
  State split_state(700);
  Adam8bitOptions options;
  for (options.step = 1; options.step <= 5; ++options.step) {
    std::vector<float> gradients(700);
    std::generate(gradients.begin(), gradients.end(), [&] { return normal(random); });
    REQUIRE(adam8bit_step(options, whole_state.view(), whole, gradients));
    for (std::size_t first = 0; first < 700; first += 256) {
      const std::size_t size = std::min<std::size_t>(256, 700 - first);
      const auto part = [&](std::vector<std::uint8_t>& codes, std::vector<float>& absmax) {
        return ByteBlocks{std::span(codes).subspan(first, size), std::span(absmax).subspan(first / 256, 1)};
      };
      REQUIRE(adam8bit_step(
          options, {part(split_state.m_codes, split_state.m_absmax), part(split_state.v_codes, split_state.v_absmax)},
          std::span(split).subspan(first, size), std::span(gradients).subspan(first, size)));
    }
  }
  CHECK(split == whole);
  CHECK(split_state.m_codes == whole_state.m_codes);
  CHECK(split_state.v_codes == whole_state.v_codes);
  CHECK(split_state.m_absmax == whole_state.m_absmax);
  CHECK(split_state.v_absmax == whole_state.v_absmax);
}

TEST_CASE("a gradient that is not finite leaves its block alone, a huge one keeps the state finite") {
  std::vector<float> parameters(512, 1.0F);
  std::vector<float> gradients(512, 0.5F);
  gradients[3] = std::numeric_limits<float>::quiet_NaN();
  State state(512);
  CHECK_FALSE(adam8bit_step({}, state.view(), parameters, gradients));
  CHECK(parameters[0] == 1);
  CHECK(parameters[300] != 1);
  CHECK(state.m_absmax[0] == 0);
  CHECK(state.m_absmax[1] > 0);
  gradients[3] = 1e30F;
  CHECK(adam8bit_step({}, state.view(), parameters, gradients));
  CHECK(std::all_of(parameters.begin(), parameters.end(), [](float x) { return std::isfinite(x); }));
  CHECK(std::isfinite(state.v_absmax[0]));
}

}  // namespace
