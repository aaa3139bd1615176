// Added tokens: strings that are tokens of their own wherever they occur, before the model sees the text.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/trie.h"

namespace stft::tokenizer {

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false;      // no influence on matching
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool normalized = false;   // looked for in the normalized text, in its normalized form; else in the raw text
};

// The ids of added tokens, in the order in which they are added: as HF tokenizers gives them, those of the vocabulary,
// else the next one behind the vocabulary and all added tokens.
class AddedTokenNumbers {
 public:
  explicit AddedTokenNumbers(std::int32_t vocabulary_size) : next_(vocabulary_size) {}

  std::int32_t id_for(std::optional<std::int32_t> in_vocabulary) {
    const std::int32_t id = in_vocabulary.value_or(next_);
    next_ = std::max(next_, id + 1);
    return id;
  }

 private:
  std::int32_t next_;
};

// Part of a text: an added token, or what lies between.
struct Fragment {
  std::size_t begin = 0;  // bytes
  std::size_t end = 0;
  const AddedToken* token = nullptr;
};

// Patterns longer than this are refused by the loader: matching takes (text x longest pattern) steps at worst.
inline constexpr std::size_t kMaxAddedTokenBytes = 1024;

// Finds the tokens of one set. Immutable; safe on any number of threads.
class AddedTokenMatcher {
 public:
  struct Entry {
    std::string pattern;  // not empty; the first of equal patterns wins
    AddedToken token;
  };

  AddedTokenMatcher() = default;
  explicit AddedTokenMatcher(std::vector<Entry> entries);
  AddedTokenMatcher(const AddedTokenMatcher&) = delete;  // fragments point into it
  AddedTokenMatcher& operator=(const AddedTokenMatcher&) = delete;
  AddedTokenMatcher(AddedTokenMatcher&&) = default;
  AddedTokenMatcher& operator=(AddedTokenMatcher&&) = default;

  bool empty() const { return entries_.empty(); }

  // The first bytes of the patterns.
  const std::array<bool, 256>& first_bytes() const { return first_bytes_; }

  // Cuts well-formed UTF-8 at the leftmost, longest matches. The fragments are not empty and cover the text in order;
  // like in HF tokenizers 0.23, white space taken by rstrip may be matched once more by a token that begins with it.
  // UserError when that makes them overlap without bound.
  std::vector<Fragment> split(std::string_view text) const;

 private:
  std::size_t find_candidate(std::string_view text, std::size_t from) const;

  std::vector<Entry> entries_;
  Trie trie_;  // pattern -> index into entries_
  std::array<bool, 256> first_bytes_{};
  int only_first_byte_ = -1;  // when all patterns begin with the same byte
};

}  // namespace stft::tokenizer
