#include "quant/bnb_blockwise8.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace stft::quant {

namespace {

// Sign, exponent and 4 bits of the fraction.
constexpr int kDroppedBits = 19;
constexpr std::uint32_t kPrefixes = 1U << (32 - kDroppedBits);
constexpr float kSmallestAbsmax = 1e-38F;

std::int64_t blocks_of(std::size_t count) {
  return byte_blocks(static_cast<std::int64_t>(count));
}

}  // namespace

ByteMap::ByteMap(const std::array<float, 256>& values) : values_(values), first_code_(kPrefixes) {
  STFT_CHECK(std::is_sorted(values.begin(), values.end()), "a map that does not ascend");
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    upper_[i] = (values[i] + values[i + 1]) / 2;
  }
  upper_.back() = std::numeric_limits<float>::infinity();
  for (std::uint32_t prefix = 0; prefix < kPrefixes; ++prefix) {
    std::uint32_t least = prefix << kDroppedBits;
    if ((least & 0x80000000U) != 0) {
      least |= (1U << kDroppedBits) - 1;  // of negative numbers the largest magnitude
    }
    const auto x = std::bit_cast<float>(least);
    const auto code = std::lower_bound(upper_.begin(), upper_.end(), x) - upper_.begin();
    first_code_[prefix] = std::isnan(x) ? std::uint8_t{0} : static_cast<std::uint8_t>(code);
  }
}

std::uint8_t ByteMap::nearest(float x) const {
  unsigned code = first_code_[std::bit_cast<std::uint32_t>(x) >> kDroppedBits];
  while (x > upper_[code]) {
    ++code;
  }
  return static_cast<std::uint8_t>(code);
}

std::optional<std::int64_t> quantize_bytes(const ByteMap& map, std::span<const float> values, ByteBlocks to) {
  STFT_CHECK(to.codes.size() == values.size() && std::ssize(to.absmax) == blocks_of(values.size()),
             "room for other numbers of codes and blocks");
  for (std::size_t b = 0; b < to.absmax.size(); ++b) {
    const std::size_t first = b * kByteBlock;
    const auto block = values.subspan(first, std::min<std::size_t>(kByteBlock, values.size() - first));
    std::uint32_t largest = 0;  // bits of magnitudes are in the order of the magnitudes
    for (const float value : block) {
      largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7fffffffU);
    }
    to.absmax[b] = std::bit_cast<float>(largest);
    if (!std::isfinite(to.absmax[b])) {
      return static_cast<std::int64_t>(b);
    }
    const float scale = 1.0F / std::max(to.absmax[b], kSmallestAbsmax);
    for (std::size_t i = 0; i < block.size(); ++i) {
      to.codes[first + i] = map.nearest(block[i] * scale);
    }
  }
  return std::nullopt;
}

void dequantize_bytes(const ByteMap& map, ByteBlocksView from, std::span<float> to) {
  STFT_CHECK(from.codes.size() == to.size() && std::ssize(from.absmax) == blocks_of(to.size()),
             "codes and blocks of another number of values");
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = map.value(from.codes[i]) * from.absmax[i / kByteBlock];
  }
}

}  // namespace stft::quant
