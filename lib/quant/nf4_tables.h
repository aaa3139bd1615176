// The number tables of bitsandbytes 0.50: what its 4-bit and 8-bit codes stand for.
#pragma once

#include <array>
#include <cstdint>

#include "quant/quant_config.h"

namespace stft::quant {

// A value x scaled to [-1, 1] has rank r = number of thresholds below x (an equal one is not below) and the code
// code_of_rank[r], which stands for values[code]. The thresholds ascend: they are the fp32 midpoints of neighbours.
struct FourBitTable {
  std::array<float, 16> values;
  std::array<float, 15> thresholds;
  std::array<std::uint8_t, 16> code_of_rank;

  std::uint8_t zero_code() const { return code_of_rank[7]; }  // of 0.0, in both tables
};

const FourBitTable& four_bit_table(QuantType type);

enum class MapSign { kSigned, kUnsigned };

// The dynamic 8-bit map, ascending: values of 0 to 7 decimal exponents and 6 to 0 bits (unsigned: 7 to 1) of fraction.
const std::array<float, 256>& dynamic_map(MapSign sign);

}  // namespace stft::quant
