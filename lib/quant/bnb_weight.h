// The tensors of a Linear4bit as bitsandbytes stores them beside `weight`:
//   weight                                    codes, U8 [ceil(n/2), 1], or the same bytes as another type
//   weight.absmax                             F32 [blocks]; with double quantization U8
//   weight.quant_map                          F32 [16]
//   weight.quant_state.bitsandbytes__nf4      U8, a JSON text (or ...__fp4)
//   weight.nested_absmax, .nested_quant_map   F32 [ceil(blocks / 256)], F32 [256]: with double quantization
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "quant/bnb_blockwise8.h"
#include "quant/nf4.h"

namespace stft::quant {

// Where tensors are read from.
struct StoredShape {
  io::Dtype dtype = io::Dtype::kF32;
  std::vector<std::int64_t> shape;
};
struct TensorReader {
  std::string path;                                                        // for messages
  std::function<std::optional<StoredShape>(const std::string& key)> find;  // nothing: no such tensor
  std::function<std::vector<std::byte>(const std::string& key)> read;      // all bytes of one that there is
};

struct NestedStatistics {
  std::array<float, 256> map;
  std::vector<float> absmax;  // of the absmax, one for each 256 blocks
  float offset = 0;
};

// Everything about a quantized weight except its codes and its absmax, of which a rank may hold a part.
struct FourBitWeight {
  std::string key;  // of `weight`
  FourBitFormat format;
  io::Dtype dtype = io::Dtype::kF32;   // of the weight before quantization: F32, BF16 or F16
  std::vector<std::int64_t> shape;     // [out, in]
  io::Dtype storage = io::Dtype::kU8;  // type that the codes' bytes are labelled with
  std::array<float, 16> values;        // what the codes stand for
  std::optional<NestedStatistics> nested;

  std::int64_t elements() const;
  std::int64_t blocks() const { return block_count(elements(), format.blocksize); }
};

// Whether `key` is a quantized weight of this kind.
bool is_four_bit(const TensorReader& from, const std::string& key);

// Reads and checks all but the two large tensors, of which only type and shape are checked. UserError naming the path,
// the tensor and what is wrong: a tensor missing or of another type or size than the weight's shape says; a state that
// is no JSON or lacks a key; both types at once, an unknown type, block size or dtype; parts of double quantization
// without the others; numbers that are not finite.
FourBitWeight read_four_bit(const TensorReader& from, const std::string& key);

// Rows of dimension 0 of the two large tensors that hold blocks [first, first + count). `first` is a multiple of 256,
// and so is `count` unless the part ends with the weight.
struct StoredRows {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
StoredRows packed_rows(const FourBitWeight& weight, std::int64_t first_block, std::int64_t count);

// The absmax of such blocks from the bytes of their rows of `weight.absmax`. UserError naming `path` when one is not
// finite.
std::vector<float> read_absmax(const FourBitWeight& weight, std::int64_t first_block, std::span<const std::byte> bytes,
                               const std::string& path);

// What is written for a weight: all tensors, and the bytes of those that FourBitWeight holds (all but `weight` and
// `weight.absmax`). The count of bytes must be divisible by the storage's size.
std::vector<io::TensorSpec> four_bit_specs(const FourBitWeight& weight);
std::vector<std::byte> four_bit_bytes(const FourBitWeight& weight, const std::string& key);

}  // namespace stft::quant
