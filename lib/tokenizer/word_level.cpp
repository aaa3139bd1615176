#include "tokenizer/word_level.h"

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace stft::tokenizer {

WordLevel::WordLevel(Vocabulary vocabulary, std::string unknown_token)
    : VocabularyModel(std::move(vocabulary)),
      unknown_token_(std::move(unknown_token)),
      unknown_id_(id_of(unknown_token_)) {}

std::int32_t WordLevel::id_for(std::string_view word) const {
  if (const std::optional<std::int32_t> id = id_of(word)) {
    return *id;
  }
  if (!unknown_id_) {
    throw UserError("the word '" + shortened(word) + "' is not in the vocabulary, nor is the unknown token '" +
                    unknown_token_ + "'");
  }
  return *unknown_id_;
}

void WordLevel::append_pieces(std::string_view word, std::vector<Piece>& pieces) const {
  pieces.push_back({id_for(word), 0, word.size()});
}

void WordLevel::append_ids(std::string_view word, std::vector<std::int32_t>& ids) const {
  ids.push_back(id_for(word));
}

}  // namespace stft::tokenizer
