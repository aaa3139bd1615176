// The WordPiece model: greedy longest match from the left.
#pragma once

#include "tokenizer/model.h"
#include "tokenizer/trie.h"

namespace stft::tokenizer {

struct WordPieceOptions {
  std::string unknown_token = "[UNK]";
  std::string continuing_prefix = "##";        // stands before every piece but the first of a word
  std::size_t max_input_chars_per_word = 100;  // a longer word, in code points, is unknown as a whole
};

class WordPiece final : public Model {
 public:
  // UserError when the vocabulary lacks the unknown token. The caller has checked that ids differ from each other and
  // lie in [0, kMaxTokenId].
  WordPiece(const Vocabulary& vocabulary, WordPieceOptions options);

  void append_pieces(std::string_view word, std::vector<Piece>& pieces) const override;
  void append_ids(std::string_view word, std::vector<std::int32_t>& ids) const override;
  std::optional<std::int32_t> id_of(std::string_view token) const override;
  std::string_view token_of(std::int32_t id) const override;
  std::size_t token_count() const override { return tokens_.size(); }
  std::int32_t largest_id() const override { return largest_id_; }

 private:
  // Calls emit(id, begin, end) for every piece; false when the word is unknown (some calls may have happened).
  template <typename Emit>
  bool match(std::string_view word, Emit emit) const;

  WordPieceOptions options_;
  Trie trie_;
  Trie::State continuing_ = Trie::kRoot;  // the state behind the continuing prefix; kDead when no token has it
  std::int32_t unknown_id_ = 0;
  std::int32_t largest_id_ = 0;
  std::unordered_map<std::int32_t, std::string> tokens_;
};

}  // namespace stft::tokenizer
