// The Unigram model: the most probable segmentation of a word (Viterbi over log probabilities), as HF tokenizers 0.23
// and sentencepiece find it.
#pragma once

#include <array>

#include "tokenizer/model.h"
#include "tokenizer/trie.h"

namespace stft::tokenizer {

struct UnigramToken {
  std::string token;
  double score = 0;  // log probability
};

struct UnigramOptions {
  std::optional<std::int32_t> unknown_id;
  bool byte_fallback = false;  // an unknown part becomes <0xNN> tokens, when there are tokens for all its bytes
};

class Unigram final : public VocabularyModel {
 public:
  // A token's id is its place; of equal tokens the last counts. UserError when the unknown id is no place in the list.
  Unigram(const std::vector<UnigramToken>& tokens, UnigramOptions options);

  // Neighbouring unknown characters are one piece; its string is its part of the word.
  void append_pieces(std::string_view word, std::vector<Piece>& pieces) const override;
  void append_ids(std::string_view word, std::vector<std::int32_t>& ids) const override;

 private:
  struct Node {  // the best way to one position of the word
    double score = 0;
    std::size_t begin = SIZE_MAX;  // of its last token; SIZE_MAX: the position is not reached
    std::int32_t id = 0;
  };

  std::vector<Node> best_paths(std::string_view word) const;
  std::vector<Piece> segmented(std::string_view word) const;
  template <typename Emit>
  void emit_part(std::string_view word, const Piece& part, Emit emit) const;
  std::int32_t unknown_id() const;

  UnigramOptions options_;
  Trie trie_;
  std::vector<double> scores_;  // by id
  double unknown_score_ = 0;
  std::array<std::int32_t, 256> byte_ids_{};  // of the <0xNN> tokens, -1 where missing
};

}  // namespace stft::tokenizer
