// The recipe's `quantization:` block. Names and defaults are bitsandbytes'.
#pragma once

#include <cstdint>

namespace stft::quant {

enum class QuantType { kNf4, kFp4 };
enum class WeightDtype { kFp32, kBf16, kFp16 };

struct QuantizationConfig {
  QuantType bnb_4bit_quant_type = QuantType::kFp4;
  bool bnb_4bit_use_double_quant = false;
  WeightDtype bnb_4bit_compute_dtype = WeightDtype::kFp32;
  int64_t blocksize = 64;
};

}  // namespace stft::quant
