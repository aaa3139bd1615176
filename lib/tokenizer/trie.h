// A set of byte strings with numbers, for longest-match look-ups without allocation.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace stft::tokenizer {

// A double-array trie. Immutable; every member is safe on any number of threads.
class Trie {
 public:
  struct Entry {
    std::string_view key;    // not empty, any bytes; used only while the trie is built
    std::int32_t value = 0;  // not negative
  };

  using State = std::uint32_t;
  static constexpr State kRoot = 0;
  static constexpr State kDead = UINT32_MAX;
  static constexpr std::int32_t kNone = -1;

  struct Match {
    std::size_t length = 0;  // bytes; 0: no match
    std::int32_t value = kNone;
  };

  Trie();
  // The keys must differ from each other. Memory is linear in their total length.
  explicit Trie(std::vector<Entry> entries);

  // The state one byte further, or kDead. `state` is not kDead.
  State next(State state, unsigned char byte) const {
    const Unit& child = units_[units_[state].base + byte];
    return child.check == state ? units_[state].base + byte : kDead;
  }

  // The number of the key that leads to a state, or kNone.
  std::int32_t value_at(State state) const { return units_[state].value; }

  // The state behind `text`, or kDead.
  State walk(State state, std::string_view text) const;

  // The longest prefix of `text` that leads from `state` to a key.
  Match longest_match(State state, std::string_view text) const;

  // The number of exactly this key, or kNone.
  std::int32_t find(std::string_view key) const;

 private:
  struct Unit {
    std::uint32_t base = 0;       // children sit at base + byte
    std::uint32_t check = kDead;  // the parent's index
    std::int32_t value = kNone;
  };
  struct Node {
    State state = 0;
    std::size_t first = 0;  // entries [first, last) share `depth` bytes
    std::size_t last = 0;
    std::size_t depth = 0;
  };
  struct Branch {
    unsigned char byte = 0;
    std::size_t first = 0;
  };

  static std::vector<Branch> branches_of(const std::vector<Entry>& entries, const Node& node);
  std::uint32_t place(const std::vector<Branch>& branches);
  void reserve_up_to(std::size_t count);

  std::vector<Unit> units_;
  std::size_t search_from_ = 1;  // while building: where the search for room begins
};

}  // namespace stft::tokenizer
