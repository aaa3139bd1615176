// Byte-pair encoding as HF tokenizers 0.23 does it: the characters of a word are merged, the pair of the lowest rank
// first, the leftmost of equals.
#pragma once

#include <array>
#include <set>
#include <string>

#include "tokenizer/merge_table.h"
#include "tokenizer/model.h"

namespace stft::tokenizer {

struct BpeOptions {
  std::optional<std::string> unknown_token;
  std::string continuing_prefix;   // before every character but the first of a word, when looked up
  std::string end_of_word_suffix;  // behind the last character of a word
  bool fuse_unknown = false;       // neighbouring unknown characters are one token
  bool byte_fallback = false;  // an unknown character becomes <0xNN> tokens, when there are tokens for all its bytes
  bool ignore_merges = false;  // a word that is a token is not taken apart
};

struct BpeMerge {
  std::string left;
  std::string right;
};

class Bpe final : public VocabularyModel {
 public:
  // The merges in the order of their ranks; of equal ones the last counts. UserError naming the merge when one of its
  // parts or its result is not in the vocabulary.
  Bpe(Vocabulary vocabulary, const std::vector<BpeMerge>& merges, BpeOptions options);

  // A character that is unknown where there is no unknown token has no piece; the pieces behind it move left by its
  // bytes.
  void append_pieces(std::string_view word, std::vector<Piece>& pieces) const override;
  void append_ids(std::string_view word, std::vector<std::int32_t>& ids) const override;

  // Before blanks of the sentencepiece kind (U+2581), where no token can reach over the begin of one.
  std::size_t next_cut(std::string_view word, std::size_t from) const override;

 private:
  struct Symbol {
    std::int32_t id = 0;
    std::uint32_t length = 0;  // bytes of the word; 0: merged into its left neighbour
    std::int32_t previous = -1;
    std::int32_t next = -1;
  };
  struct Candidate {  // two neighbours that may be merged
    std::uint32_t rank = 0;
    std::uint32_t left = 0;  // index of the left symbol
    std::int32_t result = 0;
    std::int32_t left_id = 0;
    std::int32_t right_id = 0;
  };

  std::vector<Symbol> merged(std::string_view word) const;
  void merge_few(std::vector<Symbol>& symbols) const;
  void merge_many(std::vector<Symbol>& symbols) const;
  std::vector<Symbol> symbols_of(std::string_view word) const;
  void note_crossing(const BpeMerge& merge, const std::string& result);
  std::optional<std::int32_t> char_id(std::string_view character, bool is_first, bool is_last) const;
  bool append_bytes(std::string_view character, std::vector<Symbol>& symbols) const;
  std::int32_t unknown_id() const;

  BpeOptions options_;
  MergeTable merges_;
  std::array<std::int32_t, 256> byte_ids_{};    // of the <0xNN> tokens, -1 where missing
  std::array<std::int32_t, 0x180> char_ids_{};  // of characters without affixes, -1 where missing
  bool cuts_at_blanks_ = false;
  std::set<char32_t> before_blanks_;  // characters that stand before a blank inside some token
};

}  // namespace stft::tokenizer
