#include "quant/nf4_double.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "quant/nf4_tables.h"

namespace stft::quant {

namespace {

constexpr std::size_t kCountAt = std::tuple_size_v<AbsmaxSum::Digits> - 1;
constexpr std::int64_t kMostNumbers = std::int64_t{1} << 30;  // keeps every digit below 2^63
constexpr int kDigitBits = 32;

// A value is 24 bits at most, times 2^exponent in steps of 2^-149.
struct Parts {
  std::uint64_t fraction;
  unsigned exponent;
};

Parts parts_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t exponent = bits >> 23U;
  const std::uint32_t fraction = bits & 0x7fffffU;
  return exponent == 0 ? Parts{fraction, 0} : Parts{fraction | 0x800000U, exponent - 1};
}

}  // namespace

void AbsmaxSum::add(std::span<const float> absmax) {
  for (const float value : absmax) {
    STFT_CHECK(value >= 0 && std::isfinite(value), "no magnitude of a block");
    const Parts parts = parts_of(value);
    const std::uint64_t shifted = parts.fraction << (parts.exponent % kDigitBits);
    digits_[parts.exponent / kDigitBits] += static_cast<std::int64_t>(shifted & 0xffffffffU);
    digits_[parts.exponent / kDigitBits + 1] += static_cast<std::int64_t>(shifted >> kDigitBits);
  }
  digits_[kCountAt] += std::ssize(absmax);
  STFT_CHECK(digits_[kCountAt] < kMostNumbers, "too many blocks for the sum");
}

float AbsmaxSum::mean() const {
  const auto count = static_cast<std::uint64_t>(digits_[kCountAt]);
  if (count == 0) {
    return 0;
  }
  // Below the digits of the sum stands one more for the fraction of the quotient.
  std::array<std::uint64_t, kCountAt + 1> quotient{};
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < kCountAt; ++i) {
    carry += static_cast<std::uint64_t>(digits_[i]);
    quotient[i + 1] = carry & 0xffffffffU;
    carry >>= kDigitBits;
  }
  STFT_CHECK(carry == 0, "the sum overflows its digits");
  std::uint64_t rest = 0;
  for (std::size_t i = quotient.size(); i-- > 0;) {
    const std::uint64_t dividend = (rest << kDigitBits) | quotient[i];
    quotient[i] = dividend / count;
    rest = dividend % count;
  }
  std::size_t top = quotient.size() - 1;
  while (top > 1 && quotient[top] == 0) {
    --top;
  }
  // The two leading digits, and in the last bit whether anything follows: the conversion then rounds correctly.
  bool more = rest != 0;
  for (std::size_t i = 0; i + 1 < top; ++i) {
    more = more || quotient[i] != 0;
  }
  const std::uint64_t leading = (quotient[top] << kDigitBits) | quotient[top - 1] | (more ? 1U : 0U);
  return std::ldexp(static_cast<float>(leading), kDigitBits * (static_cast<int>(top) - 2) - 149);
}

const ByteMap& nested_map() {
  static const ByteMap map(dynamic_map(MapSign::kSigned));
  return map;
}

void quantize_absmax(std::span<const float> absmax, float offset, ByteBlocks to) {
  std::vector<float> distances(absmax.size());
  std::transform(absmax.begin(), absmax.end(), distances.begin(), [&](float value) { return value - offset; });
  STFT_CHECK(!quantize_bytes(nested_map(), distances, to), "an absmax that is not finite");
}

void dequantize_absmax(const NestedView& from, std::span<float> absmax) {
  dequantize_bytes(from.map, from.blocks, absmax);
  for (float& value : absmax) {
    value += from.offset;
  }
}

double nested_range(std::span<const float> absmax, float offset) {
  double worst = 0;
  for (std::size_t first = 0; first < absmax.size(); first += kByteBlock) {
    const auto group = absmax.subspan(first, std::min<std::size_t>(kByteBlock, absmax.size() - first));
    std::vector<float> sizes;
    double distance = 0;
    for (const float value : group) {
      distance = std::max(distance, std::abs(static_cast<double>(value) - offset));
      if (value > 1e-38F) {  // what a short block of zeros has
        sizes.push_back(value);
      }
    }
    if (!sizes.empty()) {
      const auto middle = sizes.begin() + std::ssize(sizes) / 2;
      std::nth_element(sizes.begin(), middle, sizes.end());
      worst = std::max(worst, distance / *middle);
    }
  }
  return worst;
}

}  // namespace stft::quant
