#include <algorithm>
#include <bit>

#include "quant/nf4_half.h"
#include "quant/nf4_kernels.h"

namespace stft::quant::kernels {

namespace {

constexpr std::uint32_t kInfinityBits = 0x7f800000U;

// Binary search without branches, which would be mispredicted half the time.
std::uint8_t code_of(QuantizeTable table, float scaled) {
  unsigned rank = 0;
  rank += static_cast<unsigned>(scaled > table.thresholds[7]) << 3U;
  rank += static_cast<unsigned>(scaled > table.thresholds[rank + 3]) << 2U;
  rank += static_cast<unsigned>(scaled > table.thresholds[rank + 1]) << 1U;
  rank += static_cast<unsigned>(scaled > table.thresholds[rank]);
  return table.code_of_rank[rank];
}

template <class T>
std::int64_t quantize(QuantizeTable table, Blocks blocks, const void* values, std::uint8_t* packed, float* absmax) {
  const T* block = static_cast<const T*>(values);
  for (std::int64_t b = 0; b < blocks.count; ++b, block += blocks.size, packed += blocks.size / 2) {
    std::uint32_t largest = 0;  // bits of magnitudes are in the order of the magnitudes
    for (std::int64_t i = 0; i < blocks.size; ++i) {
      largest = std::max(largest, std::bit_cast<std::uint32_t>(to_float(block[i])) & 0x7fffffffU);
    }
    if (largest >= kInfinityBits) {
      return b;
    }
    absmax[b] = std::bit_cast<float>(largest);
    const float scale = 1.0F / std::max(absmax[b], 1e-38F);
    for (std::int64_t i = 0; i < blocks.size; i += 2) {
      const unsigned high = code_of(table, to_float(block[i]) * scale);
      packed[i / 2] = static_cast<std::uint8_t>(high << 4U | code_of(table, to_float(block[i + 1]) * scale));
    }
  }
  return blocks.count;
}

template <class T>
void dequantize(const float* values, Blocks blocks, const std::uint8_t* packed, const float* absmax, void* to) {
  T* out = static_cast<T*>(to);
  for (std::int64_t b = 0; b < blocks.count; ++b) {
    for (std::int64_t i = 0; i < blocks.size / 2; ++i, ++packed, out += 2) {
      out[0] = from_float<T>(values[*packed >> 4U] * absmax[b]);
      out[1] = from_float<T>(values[*packed & 15U] * absmax[b]);
    }
  }
}

}  // namespace

Quantize scalar_quantize(Element element) {
  return element == Element::kFloat32    ? quantize<float>
         : element == Element::kBFloat16 ? quantize<Bf16>
                                         : quantize<Fp16>;
}

Dequantize scalar_dequantize(Element element) {
  return element == Element::kFloat32    ? dequantize<float>
         : element == Element::kBFloat16 ? dequantize<Bf16>
                                         : dequantize<Fp16>;
}

}  // namespace stft::quant::kernels
