// The loops behind nf4.h, one set for each CpuLevel. They see raw pointers only: the files of a level are compiled for
// that level's instructions, so no inline function of a shared header may end up in them.
#pragma once

#include <cstdint>

namespace stft::quant::kernels {

// As in FourBitTable, padded to 16.
struct QuantizeTable {
  const float* thresholds;           // 15, ascending
  const std::uint8_t* code_of_rank;  // 16
};

struct Blocks {
  std::int64_t count;  // whole blocks
  std::int64_t size;   // a power of two from 32 on
};

enum class Element { kFloat32, kBFloat16, kFloat16 };

// Quantizes whole blocks; returns how many were done before one that holds a NaN or an infinity.
using Quantize = std::int64_t (*)(QuantizeTable table, Blocks blocks, const void* values, std::uint8_t* packed,
                                  float* absmax);

// `values`: 16.
using Dequantize = void (*)(const float* values, Blocks blocks, const std::uint8_t* packed, const float* absmax,
                            void* to);

Quantize scalar_quantize(Element element);
Dequantize scalar_dequantize(Element element);
Quantize avx2_quantize(Element element);
Dequantize avx2_dequantize(Element element);
Quantize avx512_quantize(Element element);
Dequantize avx512_dequantize(Element element);

}  // namespace stft::quant::kernels
