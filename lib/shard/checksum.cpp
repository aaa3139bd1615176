#include "shard/checksum.h"

#include <bit>
#include <cstring>

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

}  // namespace

uint64_t checksum_rows(const model::Parameter& parameter, const ShardLayout& layout, const at::Tensor& rows) {
  const uint64_t start = name_hash(parameter) + static_cast<uint64_t>(layout.first_row * layout.row_numel);
  const auto* values = rows.data_ptr<float>();
  uint64_t sum = 0;
  for (int64_t i = 0; i < layout.own_numel(); ++i) {
    const auto bits = uint64_t{std::bit_cast<uint32_t>(values[i])};
    sum += mix((start + static_cast<uint64_t>(i)) * 0x9E3779B97F4A7C15ULL ^ bits);
  }
  return sum;
}

}  // namespace stft::shard
