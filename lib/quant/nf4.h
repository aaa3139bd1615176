// 4-bit block-wise quantization, bit-compatible with bitsandbytes 0.50 on CPUs.
//
// A weight is flattened row by row (blocks cross the ends of rows) and cut into blocks. absmax[b] is the largest
// magnitude of block b; x * (1 / absmax) has the code of its rank in four_bit_table(); two codes share a byte, the
// first in the high half; the second of an odd count's last byte is the code of 0. As in the peer
// - absmax counts as at least 1e-38 in the division, so a block of zeros has absmax 0 and the code of 0;
// - a short last block divides by absmax instead, and stores the 1e-38.
// Reading is values[code] * absmax in fp32, rounded to the output type once.
//
// All functions work on a part of a weight that begins at a block; every part but the last holds whole blocks. Parts
// may be worked on in any order and by any threads: the bytes are those of one call over everything.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quant/nf4_cpu.h"
#include "quant/nf4_half.h"
#include "quant/nf4_tables.h"
#include "quant/quant_config.h"

namespace stft::quant {

struct FourBitFormat {
  QuantType type = QuantType::kNf4;
  std::int64_t blocksize = 64;  // a power of two, 32 to 4096
};

bool is_blocksize(std::int64_t blocksize);

std::int64_t block_count(std::int64_t elements, std::int64_t blocksize);
std::int64_t packed_size(std::int64_t elements);  // bytes

// Where codes and magnitudes of a part are written; sizes as packed_size and block_count say.
struct QuantizedPart {
  std::span<std::uint8_t> packed;
  std::span<float> absmax;
};

// T is float, Bf16 or Fp16. Returns the index of the first block that holds a NaN or an infinity, which cannot be
// quantized; then that block's and later blocks' output is unspecified. Nothing: all done.
template <class T>
std::optional<std::int64_t> quantize_4bit(const FourBitFormat& format, std::span<const T> values, QuantizedPart to,
                                          CpuLevel level = best_cpu_level());

// UserError for a block that quantize_4bit returned, naming the tensor, the position and the value. `part`: what was
// given to quantize_4bit; `first_element`: where it begins in the flattened tensor of this shape.
template <class T>
[[noreturn]] void refuse_not_finite(std::string_view tensor, std::span<const std::int64_t> shape,
                                    std::int64_t first_element, std::span<const T> part);

struct QuantizedView {
  std::span<const float, 16> values;  // what the codes stand for: a file's own map, or that of four_bit_table()
  std::int64_t blocksize = 64;
  std::span<const std::uint8_t> packed;
  std::span<const float> absmax;
};

// T as above. Values and absmax are finite (bnb_weight.h sees to that in a file); their products need not be.
template <class T>
void dequantize_4bit(const QuantizedView& from, std::span<T> to, CpuLevel level = best_cpu_level());

// Quantizes a part that arrives in pieces of any size, such as rows that do not end with a block.
class PieceQuantizer {
 public:
  PieceQuantizer(const FourBitFormat& format, QuantizedPart to);

  // The next values. As quantize_4bit, counted from the start of the part. The part's size must not be exceeded.
  template <class T>
  std::optional<std::int64_t> append(std::span<const T> values);

  // After the last piece: writes the short last block if there is one. All blocks must have been filled.
  std::optional<std::int64_t> finish();

 private:
  std::optional<std::int64_t> flush();

  FourBitFormat format_;
  QuantizedPart to_;
  std::int64_t blocks_done_ = 0;
  std::vector<float> begun_;  // values of the block that is not complete
};

}  // namespace stft::quant
