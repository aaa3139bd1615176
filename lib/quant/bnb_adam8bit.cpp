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

  explicit Factors(const Adam8bitOptions& o)
      : beta1(static_cast<float>(o.beta1)),
        one_less_beta1(static_cast<float>(1 - o.beta1)),
        beta2(static_cast<float>(o.beta2)),
        one_less_beta2(static_cast<float>(1 - o.beta2)),
        root_correction(static_cast<float>(std::sqrt(1 - std::pow(o.beta2, static_cast<double>(o.step))))),
        eps(static_cast<float>(o.eps)),
        rate(static_cast<float>(o.learning_rate / (1 - std::pow(o.beta1, static_cast<double>(o.step))))),
        kept(static_cast<float>(1 - o.learning_rate * o.weight_decay)) {}
};

struct Moments {
  std::array<float, kByteBlock> m;
  std::array<float, kByteBlock> v;
};

void step_block(const Factors& f, Moments& moments, std::span<float> parameters, std::span<const float> gradients) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float g = gradients[i];
    moments.m[i] = moments.m[i] * f.beta1 + f.one_less_beta1 * g;
    moments.v[i] = moments.v[i] * f.beta2 + f.one_less_beta2 * (g * g);
    const float root = std::sqrt(moments.v[i]) / f.root_correction + f.eps;
    parameters[i] = parameters[i] * f.kept - f.rate * (moments.m[i] / root);
  }
}

// The part of a state that is one block.
ByteBlocks block_of(const ByteBlocks& all, std::size_t block, std::size_t count) {
  return {all.codes.subspan(block * kByteBlock, count), all.absmax.subspan(block, 1)};
}

bool has_all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

}  // namespace

bool adam8bit_step(const Adam8bitOptions& options, Adam8bitState state, std::span<float> parameters,
                   std::span<const float> gradients) {
  static const ByteMap signed_map(dynamic_map(MapSign::kSigned));
  static const ByteMap unsigned_map(dynamic_map(MapSign::kUnsigned));
  const std::size_t count = parameters.size();
  const std::size_t blocks = (count + kByteBlock - 1) / kByteBlock;
  STFT_CHECK(gradients.size() == count && state.m.codes.size() == count && state.v.codes.size() == count &&
                 state.m.absmax.size() == blocks && state.v.absmax.size() == blocks,
             "parameters, gradients and state of different sizes");
  const Factors factors(options);
  bool all_finite = true;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t first = b * kByteBlock;
    const std::size_t size = std::min<std::size_t>(kByteBlock, count - first);
    const ByteBlocks m = block_of(state.m, b, size);
    const ByteBlocks v = block_of(state.v, b, size);
    if (!has_all_finite(gradients.subspan(first, size))) {
      all_finite = false;
      continue;
    }
    Moments moments;
    const auto new_m = std::span(moments.m).first(size);
    const auto new_v = std::span(moments.v).first(size);
    dequantize_bytes(signed_map, {m.codes, m.absmax}, new_m);
    dequantize_bytes(unsigned_map, {v.codes, v.absmax}, new_v);
    step_block(factors, moments, parameters.subspan(first, size), gradients.subspan(first, size));
    // A gradient of 1e20 has a square that is infinite: kept out of the state as its largest number.
    for (float& value : new_v) {
      value = std::min(value, 3e38F);
    }
    quantize_bytes(signed_map, new_m, m);
    quantize_bytes(unsigned_map, new_v, v);
  }
  return all_finite;
}

}  // namespace stft::quant
