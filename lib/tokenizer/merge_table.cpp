#include "tokenizer/merge_table.h"

#include <bit>

namespace stft::tokenizer {
namespace {

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(std::size_t count) : slots_(std::bit_ceil(2 * count + 2)) {
  shift_ = 64 - std::countr_zero(slots_.size());
}

// The slot of the key, or the free one where it belongs.
std::size_t MergeTable::slot_of(std::uint64_t key) const {
  constexpr std::uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;  // Fibonacci hashing
  auto slot = static_cast<std::size_t>((key ^ key >> 29) * kGoldenRatio >> shift_);
  while (slots_[slot].merge.result >= 0 && slots_[slot].key != key) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

void MergeTable::set(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t key = key_of(left, right);
  slots_[slot_of(key)] = {key, merge};
}

Merge MergeTable::find(std::int32_t left, std::int32_t right) const {
  return slots_[slot_of(key_of(left, right))].merge;
}

}  // namespace stft::tokenizer
