// The stages of a tokenizer.json in their order: added tokens in the raw text, normalizer, added tokens in the
// normalized text, pre-tokenizer, model, truncation, post-processor.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/side.h"
#include "tokenizer/word_cache.h"

namespace stft::tokenizer {

struct PipelineParts {
  std::vector<AddedToken> added_tokens;  // contents differ from each other and are not empty
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<const Model> model;
  PostProcessor post_processor;
  Side truncation_side = Side::kRight;
};

// Immutable; safe on any number of threads. Texts are well-formed UTF-8.
class Pipeline {
 public:
  // UserError when an added token normalizes to nothing.
  explicit Pipeline(PipelineParts parts);

  // At most `budget` ids of the text itself, between the special tokens.
  std::vector<std::int32_t> encode_ids(std::string_view text, std::size_t budget) const;
  Encoding encode(std::string_view text, std::size_t budget) const;

  std::int32_t largest_id() const { return largest_id_; }
  std::size_t special_count() const { return post_processor_.special_count(); }
  // Whether the id is an added token that is special.
  bool is_special(std::int32_t id) const;

 private:
  // What an ASCII character comes to on the fast path.
  enum class AsciiKind : std::uint8_t { kWord, kDropped, kBlank, kPunctuation };
  struct AsciiAction {
    AsciiKind kind = AsciiKind::kWord;
    char lowered = 0;  // the normalized character
  };

  void set_up_fast_path();
  template <typename OnToken, typename OnWords>
  void for_parts(std::string_view raw, std::uint32_t first_index, OnToken on_token, OnWords on_words) const;
  void append_fragment(std::string_view raw, bool begins_text, std::size_t limit, std::vector<std::int32_t>& ids) const;
  void append_general(std::string_view raw, bool begins_text, std::size_t limit, std::vector<std::int32_t>& ids) const;
  void append_fast(std::string_view raw, std::size_t limit, std::vector<std::int32_t>& ids) const;
  std::size_t uncertain_end(std::string_view raw, std::size_t from) const;
  void append_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  void append_fragment_encoding(std::string_view raw, std::uint32_t first_index, Encoding& encoding) const;
  void append_word_encoding(std::span<const AlignedChar> word, Encoding& encoding) const;

  AddedTokenMatcher raw_added_;
  AddedTokenMatcher normalized_added_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<const Model> model_;
  PostProcessor post_processor_;
  Side truncation_side_ = Side::kRight;
  WordCache cache_;
  std::int32_t largest_id_ = 0;
  std::vector<std::int32_t> special_ids_;  // ascending

  bool has_fast_path_ = false;
  std::array<AsciiAction, 128> ascii_{};
  std::array<bool, 256> may_begin_added_{};  // raw bytes that a token of normalized_added_ may come from
};

}  // namespace stft::tokenizer
