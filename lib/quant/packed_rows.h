// A quantized weight as rows of bytes, each of which can be read on its own: a row is a group of B blocks, B 256 or,
// of a weight that has fewer, all of them.
//   codes        B / 2 * blocksize bytes
//   statistics   absmax as F32 [B], or, doubly quantized: codes of them [B, up to a multiple of 4 bytes], their own
//                absmax F32, the offset F32
// What the last row has not is zero bytes. A weight's rows hold the bits of the tensors in bnb_weight.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "quant/bnb_blockwise8.h"
#include "quant/bnb_weight.h"
#include "quant/nf4.h"

namespace stft::quant {

inline constexpr std::int64_t kGroupBlocks = kByteBlock;

struct PackedRows {
  FourBitFormat format;
  std::array<float, 16> values;       // what the codes stand for
  io::Dtype dtype = io::Dtype::kF32;  // of the weight before quantization: reading rounds to it first
  std::int64_t elements = 0;          // of the whole weight
  std::int64_t row_blocks = kGroupBlocks;
  std::shared_ptr<const ByteMap> map;  // of a doubly quantized weight's absmax; null: singly quantized

  std::int64_t row_elements() const { return row_blocks * format.blocksize; }
  std::int64_t row_bytes() const;
  std::int64_t rows() const { return (elements + row_elements() - 1) / row_elements(); }
  // How many elements row `row` stands for.
  std::int64_t elements_of(std::int64_t row) const;
};

// Of a weight that is going to be quantized, and of one that is stored so.
PackedRows packed_rows_of(const FourBitFormat& format, std::int64_t elements, io::Dtype dtype, bool is_double);
PackedRows packed_rows_of(const FourBitWeight& stored);

// Quantizes the elements of one row. `offset`: of the whole weight's absmax, when doubly quantized. As quantize_4bit
// for what cannot be quantized.
std::optional<std::int64_t> pack_row(const PackedRows& form, std::span<const float> values, float offset,
                                     std::span<std::uint8_t> row);

// The same bytes from those of the stored tensors: codes, and absmax (F32, or U8 of a doubly quantized weight) of this
// row's blocks. `form` is that of `stored`, `row_index` the row's place in the weight.
void copy_row(const FourBitWeight& stored, const PackedRows& form, std::int64_t row_index,
              std::span<const std::byte> codes, std::span<const std::byte> absmax, std::span<std::uint8_t> row);

// Reads the elements of one row, as bitsandbytes does and then cast to T: float or Bf16.
template <class T>
void unpack_row(const PackedRows& form, std::span<const std::uint8_t> row, std::span<T> to);

}  // namespace stft::quant
