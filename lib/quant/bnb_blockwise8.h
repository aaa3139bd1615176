// 8-bit block-wise quantization: a block's values divided by its largest magnitude, each as the index of the nearest of
// 256 numbers. bitsandbytes quantizes absmax (double quantization) and the states of its 8-bit optimizers so.
//
// Its CPU routine picks the second nearest for about 2 of 1000 values, differently on each processor; these functions
// always pick the nearest (of two equally near the lower), so codes agree up to such picks. Reading is bit-exact.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace stft::quant {

inline constexpr std::int64_t kByteBlock = 256;  // values of a block in both uses

constexpr std::int64_t byte_blocks(std::int64_t values) {
  return (values + kByteBlock - 1) / kByteBlock;
}

// 256 ascending numbers with a quick way to the nearest.
class ByteMap {
 public:
  explicit ByteMap(const std::array<float, 256>& values);

  float value(std::uint8_t code) const { return values_[code]; }
  std::uint8_t nearest(float x) const;  // x is no NaN

 private:
  std::array<float, 256> values_;
  std::array<float, 256> upper_;          // between a value and the next one; the last is infinite
  std::vector<std::uint8_t> first_code_;  // by the leading bits of x: the nearest code of the least such x
};

struct ByteBlocks {
  std::span<std::uint8_t> codes;
  std::span<float> absmax;  // one for each kByteBlock codes, the last block may be short
};

struct ByteBlocksView {
  std::span<const std::uint8_t> codes;
  std::span<const float> absmax;
};

// Works on a part that begins at a block. A block of zeros has absmax 0. Returns the index of the first block that
// holds a NaN or an infinity, whose output and what follows is unspecified; nothing: all done.
std::optional<std::int64_t> quantize_bytes(const ByteMap& map, std::span<const float> values, ByteBlocks to);

// map value * absmax.
void dequantize_bytes(const ByteMap& map, ByteBlocksView from, std::span<float> to);

}  // namespace stft::quant
