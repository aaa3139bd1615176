// Which pairs of tokens merge, how early, and into what.
#pragma once

#include <cstdint>
#include <vector>

namespace stft::tokenizer {

struct Merge {
  std::uint32_t rank = 0;
  std::int32_t result = -1;  // -1: the pair does not merge
};

// A hash table with open addressing. Safe on any number of threads once it is filled.
class MergeTable {
 public:
  // Room for `count` pairs.
  explicit MergeTable(std::size_t count);

  // Replaces what was set for the pair.
  void set(std::int32_t left, std::int32_t right, Merge merge);
  Merge find(std::int32_t left, std::int32_t right) const;

 private:
  struct Slot {
    std::uint64_t key = 0;
    Merge merge;
  };

  std::size_t slot_of(std::uint64_t key) const;

  std::vector<Slot> slots_;  // a power of two; a slot without a result is free
  int shift_ = 0;
};

}  // namespace stft::tokenizer
