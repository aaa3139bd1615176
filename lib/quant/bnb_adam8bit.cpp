#include "quant/bnb_adam8bit.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "quant/nf4_tables.h"

namespace stft::quant {

namespace {

// The factors of a step in fp32, as the peer rounds them.
struct Factors {
  float beta1;
  float one_less_beta1;
  float beta2;
  float one_less_beta2;
  float root_correction;  // sqrt(1 - beta2^step)
  float eps;
  float rate;  // learning rate / (1 - beta1^step)
  float kept;  // 1 - learning rate * weight decay
  float gradient_scale;

  explicit Factors(const Adam8bitOptions& o)
      : beta1(static_cast<float>(o.beta1)),
        one_less_beta1(static_cast<float>(1 - o.beta1)),
        beta2(static_cast<float>(o.beta2)),
        one_less_beta2(static_cast<float>(1 - o.beta2)),
        root_correction(static_cast<float>(std::sqrt(1 - std::pow(o.beta2, static_cast<double>(o.step))))),
        eps(static_cast<float>(o.eps)),
        rate(static_cast<float>(o.learning_rate / (1 - std::pow(o.beta1, static_cast<double>(o.step))))),
        kept(static_cast<float>(1 - o.learning_rate * o.weight_decay)),
        gradient_scale(static_cast<float>(o.gradient_scale)) {}
};

struct Moments {
  std::array<float, kByteBlock> m;
  std::array<float, kByteBlock> v;
};

void step_block(const Factors& f, Moments& moments, std::span<float> parameters, std::span<const float> gradients) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float g = gradients[i] * f.gradient_scale;
    moments.m[i] = moments.m[i] * f.beta1 + f.one_less_beta1 * g;
    moments.v[i] = moments.v[i] * f.beta2 + f.one_less_beta2 * (g * g);
    const float root = std::sqrt(moments.v[i]) / f.root_correction + f.eps;
    parameters[i] = parameters[i] * f.kept - f.rate * (moments.m[i] / root);
  }
}

struct Maps {
  ByteMap first{dynamic_map(MapSign::kSigned)};
  ByteMap second{dynamic_map(MapSign::kUnsigned)};
};

const Maps& maps() {
  static const Maps both;
  return both;
}

struct Block {
  ByteBlocks m;
  ByteBlocks v;
  std::span<float> parameters;
  std::span<const float> gradients;
};

bool has_all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

// False, and nothing done: a gradient that is not finite.
bool update_block(const Factors& factors, const Block& block) {
  if (!has_all_finite(block.gradients)) {
    return false;
  }
  Moments moments;
  const auto new_m = std::span(moments.m).first(block.parameters.size());
  const auto new_v = std::span(moments.v).first(block.parameters.size());
  dequantize_bytes(maps().first, {block.m.codes, block.m.absmax}, new_m);
  dequantize_bytes(maps().second, {block.v.codes, block.v.absmax}, new_v);
  step_block(factors, moments, block.parameters, block.gradients);
  // A gradient of 1e20 has a square that is infinite: kept out of the state as its largest number.
  for (float& value : new_v) {
    value = std::min(value, 3e38F);
  }
  quantize_bytes(maps().first, new_m, block.m);
  quantize_bytes(maps().second, new_v, block.v);
  return true;
}

}  // namespace

bool adam8bit_step(const Adam8bitOptions& options, Adam8bitState state, std::span<float> parameters,
                   std::span<const float> gradients) {
  const std::size_t count = parameters.size();
  const std::size_t row = state.row_elements > 0 ? static_cast<std::size_t>(state.row_elements) : count;
  const std::size_t rows = count == 0 ? 0 : count / row;
  const std::size_t blocks = rows * static_cast<std::size_t>(byte_blocks(static_cast<std::int64_t>(row)));
  STFT_CHECK(rows * row == count && gradients.size() == count && state.m.codes.size() == count &&
                 state.v.codes.size() == count && state.m.absmax.size() == blocks && state.v.absmax.size() == blocks,
             "parameters, gradients and state of different sizes");
  const Factors factors(options);
  bool all_finite = true;
  std::size_t first = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t size = std::min<std::size_t>(kByteBlock, row - first % row);
    const Block block{{state.m.codes.subspan(first, size), state.m.absmax.subspan(b, 1)},
                      {state.v.codes.subspan(first, size), state.v.absmax.subspan(b, 1)},
                      parameters.subspan(first, size),
                      gradients.subspan(first, size)};
    all_finite = update_block(factors, block) && all_finite;
    first += size;
  }
  return all_finite;
}

}  // namespace stft::quant
