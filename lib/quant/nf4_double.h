// Double quantization: the absmax of a weight's blocks, less their mean, in 8 bits; 256 blocks are a group. Two passes:
//   1. every rank quantizes its blocks and adds their absmax to an AbsmaxSum; the sums are added over the ranks;
//   2. with mean() as the offset every rank quantizes its own groups. Parts begin at a group.
//
// What is exact: the sum, so the offset and with it every byte are the same for any split over ranks; reading, so that
// absmax is what bitsandbytes reads from the same file. Not the offset bitsandbytes would have computed: its mean is a
// fp32 sum whose order depends on the processor and the threads. Ours is the true mean rounded once, a few units in the
// last place away. Codes: see bnb_blockwise8.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "quant/bnb_blockwise8.h"

namespace stft::quant {

// The exact sum of fp32 numbers that are not negative and finite, as digits that may be added as integers in any order.
class AbsmaxSum {
 public:
  // 32 bits a digit, in steps of 2^-149, without carries. Last: how many numbers. An all-reduce with the sum of int64
  // adds the ranks' sums. Fewer than 2^30 numbers.
  using Digits = std::array<std::int64_t, 11>;

  AbsmaxSum() = default;
  explicit AbsmaxSum(const Digits& digits) : digits_(digits) {}

  void add(std::span<const float> absmax);
  const Digits& digits() const { return digits_; }

  // Rounded to the nearest fp32; 0 of nothing.
  float mean() const;

 private:
  Digits digits_{};
};

// Writes codes and nested absmax of a part's groups. The absmax are finite.
void quantize_absmax(std::span<const float> absmax, float offset, ByteBlocks to);

// map value * nested absmax + offset. `map`: the file's own, or the signed dynamic_map().
struct NestedView {
  const ByteMap& map;
  ByteBlocksView blocks;
  float offset = 0;
};
void dequantize_absmax(const NestedView& from, std::span<float> absmax);

// The map that quantize_absmax uses.
const ByteMap& nested_map();

// When one block of a tensor is far larger than the others, double quantization takes the others' absmax away: they are
// stored in steps of up to 0.7 % of the largest distance from the mean. The figure is that distance over the median
// absmax (of blocks that are not all zero) in the worst group of a part; the largest over the parts is the tensor's.
double nested_range(std::span<const float> absmax, float offset);

// A tensor with a greater nested_range stays singly quantized, which bitsandbytes reads as well, and the user is told:
// the typical absmax would be off by up to 70 % and more. Normal weights have a range below 10.
inline constexpr double kMaxNestedRange = 100;

}  // namespace stft::quant
