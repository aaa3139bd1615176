// The WordLevel model: a word is a token or it is unknown.
#pragma once

#include <string>

#include "tokenizer/model.h"

namespace stft::tokenizer {

class WordLevel final : public VocabularyModel {
 public:
  // A vocabulary that lacks the unknown token is good for texts of known words.
  WordLevel(Vocabulary vocabulary, std::string unknown_token);

  void append_pieces(std::string_view word, std::vector<Piece>& pieces) const override;
  void append_ids(std::string_view word, std::vector<std::int32_t>& ids) const override;

 private:
  std::int32_t id_for(std::string_view word) const;

  std::string unknown_token_;
  std::optional<std::int32_t> unknown_id_;
};

}  // namespace stft::tokenizer
