#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <utility>

namespace stft::tokenizer {

Vocabulary::Vocabulary(std::vector<VocabularyEntry> entries) : entries_(std::move(entries)) {
  std::int32_t largest = -1;
  for (const VocabularyEntry& entry : entries_) {
    largest = std::max(largest, entry.id);
  }
  entry_of_.assign(static_cast<std::size_t>(largest + 1), -1);
  ids_.reserve(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    ids_.insert_or_assign(entries_[i].token, entries_[i].id);
    entry_of_[static_cast<std::size_t>(entries_[i].id)] = static_cast<std::int32_t>(i);
  }
}

std::optional<std::int32_t> Vocabulary::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::string_view Vocabulary::token_of(std::int32_t id) const {
  if (id < 0 || id > largest_id()) {
    return {};
  }
  const std::int32_t entry = entry_of_[static_cast<std::size_t>(id)];
  return entry < 0 ? std::string_view() : entries_[static_cast<std::size_t>(entry)].token;
}

Trie trie_of(const Vocabulary& vocabulary) {
  std::vector<Trie::Entry> entries;
  entries.reserve(vocabulary.size());
  for (const VocabularyEntry& entry : vocabulary.entries()) {
    if (!entry.token.empty() && vocabulary.id_of(entry.token) == entry.id) {
      entries.push_back({entry.token, entry.id});
    }
  }
  return Trie(std::move(entries));
}

}  // namespace stft::tokenizer
