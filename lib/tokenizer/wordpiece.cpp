#include "tokenizer/wordpiece.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

// Whether the word has more than `limit` code points.
bool is_longer_than(std::string_view word, std::size_t limit) {
  return word.size() > limit && count_chars(word) > limit;
}

}  // namespace

WordPiece::WordPiece(Vocabulary table, WordPieceOptions options)
    : VocabularyModel(std::move(table)), options_(std::move(options)), trie_(trie_of(vocabulary())) {
  continuing_ = trie_.walk(Trie::kRoot, options_.continuing_prefix);
  const std::optional<std::int32_t> unknown = id_of(options_.unknown_token);
  if (!unknown) {
    throw UserError("the unknown token '" + options_.unknown_token + "' is not in the vocabulary");
  }
  unknown_id_ = *unknown;
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

}  // namespace stft::tokenizer
