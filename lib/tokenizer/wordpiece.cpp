#include "tokenizer/wordpiece.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace stft::tokenizer {
namespace {

// Whether the word has more than `limit` code points.
bool is_longer_than(std::string_view word, std::size_t limit) {
  if (word.size() <= limit) {
    return false;
  }
  const auto chars =
      std::count_if(word.begin(), word.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  return static_cast<std::size_t>(chars) > limit;
}

Trie trie_of(const Vocabulary& vocabulary) {
  std::vector<Trie::Entry> entries;
  entries.reserve(vocabulary.size());
  for (const auto& [token, id] : vocabulary) {
    if (!token.empty()) {
      entries.push_back({token, id});
    }
  }
  return Trie(std::move(entries));
}

}  // namespace

WordPiece::WordPiece(const Vocabulary& vocabulary, WordPieceOptions options)
    : options_(std::move(options)), trie_(trie_of(vocabulary)) {
  continuing_ = trie_.walk(Trie::kRoot, options_.continuing_prefix);
  unknown_id_ = trie_.find(options_.unknown_token);
  if (unknown_id_ == Trie::kNone) {
    throw UserError("the unknown token '" + options_.unknown_token + "' is not in the vocabulary");
  }
  tokens_.reserve(vocabulary.size());
  for (const auto& [token, id] : vocabulary) {
    tokens_.emplace(id, token);
    largest_id_ = std::max(largest_id_, id);
  }
}

template <typename Emit>
bool WordPiece::match(std::string_view word, Emit emit) const {
  if (is_longer_than(word, options_.max_input_chars_per_word)) {
    return false;
  }
  Trie::State start = Trie::kRoot;
  for (std::size_t position = 0; position < word.size();) {
    const Trie::Match match = start == Trie::kDead ? Trie::Match{} : trie_.longest_match(start, word.substr(position));
    if (match.length == 0) {
      return false;
    }
    emit(match.value, position, position + match.length);
    position += match.length;
    start = continuing_;
  }
  return true;
}

void WordPiece::append_pieces(std::string_view word, std::vector<Piece>& pieces) const {
  const std::size_t before = pieces.size();
  const bool known = match(word, [&](std::int32_t id, std::size_t begin, std::size_t end) {
    pieces.push_back({id, begin, end});
  });
  if (!known) {
    pieces.resize(before);
    pieces.push_back({unknown_id_, 0, word.size()});
  }
}

void WordPiece::append_ids(std::string_view word, std::vector<std::int32_t>& ids) const {
  const std::size_t before = ids.size();
  if (!match(word, [&](std::int32_t id, std::size_t, std::size_t) { ids.push_back(id); })) {
    ids.resize(before);
    ids.push_back(unknown_id_);
  }
}

std::optional<std::int32_t> WordPiece::id_of(std::string_view token) const {
  const std::int32_t id = trie_.find(token);
  return id == Trie::kNone ? std::nullopt : std::optional(id);
}

std::string_view WordPiece::token_of(std::int32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? std::string_view() : found->second;
}

}  // namespace stft::tokenizer
