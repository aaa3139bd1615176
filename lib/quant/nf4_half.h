// The 16-bit floating-point types as bits, and their conversions in portable code.
#pragma once

#include <bit>
#include <cstdint>

namespace stft::quant {

// Same size and bits as at::BFloat16 and at::Half.
struct Bf16 {
  std::uint16_t bits = 0;
};
struct Fp16 {
  std::uint16_t bits = 0;
};

inline float to_float(float value) {
  return value;
}

inline float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

inline float to_float(Fp16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
  const std::uint32_t magnitude = value.bits & 0x7fffU;
  if (magnitude >= 0x7c00U) {  // infinity, NaN
    return std::bit_cast<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13));
  }
  if (magnitude < 0x400U) {  // zero and subnormal: steps of 2^-24
    const float size = static_cast<float>(magnitude) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(size));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + ((127U - 15U) << 23)));
}

template <class T>
T from_float(float value);

template <>
inline float from_float<float>(float value) {
  return value;
}

// To the nearest, ties to even; overflow is infinity. The payload of a NaN is not kept.
template <>
inline Bf16 from_float<Bf16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  }
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}

template <>
inline Fp16 from_float<Fp16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    return {static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU))};
  }
  if (magnitude >= 0x477ff000U) {  // 65520 and above round to infinity
    return {static_cast<std::uint16_t>(sign | 0x7c00U)};
  }
  if (magnitude < 0x38800000U) {  // below 2^-14: adding 0.5 rounds to steps of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U))};
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U) - ((127U - 15U) << 23);
  return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
}

}  // namespace stft::quant
