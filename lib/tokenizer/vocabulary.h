// The tokens of a model and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/trie.h"

namespace stft::tokenizer {

// Token ids lie in [0, kMaxTokenId]; the loader refuses others.
inline constexpr std::int32_t kMaxTokenId = (1 << 24) - 1;

// A longer token is refused by the loader: looking for the longest match takes (text x longest token) steps at worst.
inline constexpr std::size_t kMaxTokenBytes = 1024;

struct VocabularyEntry {
  std::string token;
  std::int32_t id = 0;
};

// Immutable; safe on any number of threads.
class Vocabulary {
 public:
  Vocabulary() = default;
  // The ids differ from each other. Of equal tokens the last one gives its id.
  explicit Vocabulary(std::vector<VocabularyEntry> entries);
  Vocabulary(const Vocabulary&) = delete;  // the index points into the entries
  Vocabulary& operator=(const Vocabulary&) = delete;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  std::optional<std::int32_t> id_of(std::string_view token) const;
  std::string_view token_of(std::int32_t id) const;  // empty for an id that the vocabulary lacks
  const std::vector<VocabularyEntry>& entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }
  std::int32_t largest_id() const { return static_cast<std::int32_t>(entry_of_.size()) - 1; }  // -1 when empty

 private:
  std::vector<VocabularyEntry> entries_;
  std::unordered_map<std::string_view, std::int32_t> ids_;
  std::vector<std::int32_t> entry_of_;  // index into entries_ for each id, or -1
};

// All tokens but the empty one, with their ids; equal ones with that of the last.
Trie trie_of(const Vocabulary& vocabulary);

}  // namespace stft::tokenizer
