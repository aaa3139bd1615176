// What the files of a tokenizer come to: the facts that a run tells at its start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/post_processor.h"
#include "tokenizer/side.h"

namespace stft::tokenizer {

struct TokenizerPolicy {
  std::vector<std::string> files;    // paths that had a say, the vocabulary's first
  std::string tokenizer_class;       // of transformers 5.24; TokenizersBackend: tokenizer.json as it stands
  std::string class_stated_by;       // "<path>: <key>"; empty: no file names a class
  std::vector<SpecialToken> before;  // around every text
  std::vector<SpecialToken> after;
  bool adds_bos = false;    // one of `before` is the bos_token or the cls_token
  bool adds_eos = false;    // one of `after` is the eos_token or the sep_token
  bool pad_is_end = false;  // the pad_token is one of `after`: padding cannot be told from the end by its id
  std::optional<std::int64_t> model_max_length;  // tokenizer_config.json; nothing: missing, null or no real limit
  std::optional<std::int64_t> max_seq_length;    // sentence_bert_config.json; wins over model_max_length
  Side truncation_side = Side::kRight;           // where a text that is too long is cut
  Side padding_side = Side::kRight;              // data only: batches are packed, or padded by their mask
  bool lower_cases = false;                      // sentence_bert_config.json's do_lower_case
  std::vector<std::string> warnings;             // where files disagree: both, the keys, and which one counts
};

// One line: class, files, special tokens, lengths, sides.
std::string describe(const TokenizerPolicy& policy);

}  // namespace stft::tokenizer
