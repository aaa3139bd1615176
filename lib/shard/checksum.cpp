#include "shard/checksum.h"

#include "base/error.h"

namespace stft::shard {
namespace {

// Finaliser of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

uint64_t name_hash(const model::Parameter& parameter) {
  uint64_t hash = mix(static_cast<uint64_t>(parameter.module) + 1);
  for (const char c : parameter.name) {
    hash = mix(hash ^ static_cast<unsigned char>(c));
  }
  return hash;
}

template <typename Bits>
uint64_t sum_of_hashes(uint64_t start, const at::Tensor& rows) {
  const auto* values = static_cast<const Bits*>(rows.const_data_ptr());
  const auto count = static_cast<int64_t>(rows.nbytes() / sizeof(Bits));
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += mix((start + static_cast<uint64_t>(i)) * 0x9E3779B97F4A7C15ULL ^ uint64_t{values[i]});
  }
  return sum;
}

}  // namespace

uint64_t checksum_rows(const model::Parameter& parameter, const ShardLayout& layout, const at::Tensor& rows) {
  const uint64_t first = static_cast<uint64_t>(layout.first_row * layout.row_numel);
  const uint64_t start = name_hash(parameter) + first;
  switch (rows.element_size()) {
    case 4:
      return sum_of_hashes<uint32_t>(start, rows);
    case 2:
      return sum_of_hashes<uint16_t>(start, rows);
    case 1:  // packed rows, four bytes at a time
      STFT_CHECK(layout.row_numel % 4 == 0, "packed rows are whole words");
      return sum_of_hashes<uint32_t>(name_hash(parameter) + first / 4, rows);
    default:
      throw_internal("an element has 4, 2 or 1 bytes", "");
  }
}

}  // namespace stft::shard
