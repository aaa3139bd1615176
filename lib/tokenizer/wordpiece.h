// The WordPiece model: greedy longest match from the left.
#pragma once

#include <string>

#include "tokenizer/model.h"
#include "tokenizer/trie.h"

namespace stft::tokenizer {

struct WordPieceOptions {
  std::string unknown_token = "[UNK]";
  std::string continuing_prefix = "##";        // stands before every piece but the first of a word
  std::size_t max_input_chars_per_word = 100;  // a longer word, in code points, is unknown as a whole
};

class WordPiece final : public VocabularyModel {
 public:
  // UserError when the vocabulary lacks the unknown token.
  WordPiece(Vocabulary vocabulary, WordPieceOptions options);

  void append_pieces(std::string_view word, std::vector<Piece>& pieces) const override;
  void append_ids(std::string_view word, std::vector<std::int32_t>& ids) const override;

 private:
  // Calls emit(id, begin, end) for every piece; false when the word is unknown (some calls may have happened).
  template <typename Emit>
  bool match(std::string_view word, Emit emit) const;

  WordPieceOptions options_;
  Trie trie_;
  Trie::State continuing_ = Trie::kRoot;  // the state behind the continuing prefix; kDead when no token has it
  std::int32_t unknown_id_ = 0;
};

}  // namespace stft::tokenizer
