// Text to token ids as HF tokenizers 0.23 does it, from the tokenizer.json of a model directory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/post_processor.h"

namespace stft::tokenizer {

class Pipeline;

// Immutable; copies share everything; every member is safe on any number of threads.
//
// Texts are single texts (no pairs). The truncation and padding of tokenizer.json are ignored: `max_length` counts the
// special tokens and cuts the text at the right; 0 or less: no truncation; less than special_tokens_per_text(): the
// special tokens alone. Ill-formed UTF-8 is read as U+FFFD, one for each maximal ill-formed part. UserError: a text
// over 256 MiB.
class Tokenizer {
 public:
  // Reads tokenizer.json and, where they exist, tokenizer_config.json (model_max_length) and sentence_bert_config.json
  // (max_seq_length; do_lower_case lower-cases every text before the normalizer). UserError, naming the path and the
  // key, when a file is missing or malformed or asks for a component that is not available.
  static Tokenizer load(const std::string& model_directory);

  // For a pipeline put together elsewhere; model_max_length() and max_seq_length() as given.
  Tokenizer(std::shared_ptr<const Pipeline> pipeline, std::optional<std::int64_t> model_max_length,
            std::optional<std::int64_t> max_seq_length);

  // Special tokens included.
  std::vector<std::int32_t> encode_ids(std::string_view text, std::int64_t max_length) const;

  // The same ids with their strings and offsets (code points of `text`).
  Encoding encode(std::string_view text, std::int64_t max_length) const;

  // tokenizer_config.json's; nothing when it is missing, null or no real limit (above 1e9).
  std::optional<std::int64_t> model_max_length() const { return model_max_length_; }

  // sentence_bert_config.json's; nothing when the file or the key is missing or null.
  std::optional<std::int64_t> max_seq_length() const { return max_seq_length_; }

  // One more than the largest id: what an embedding table needs.
  std::int64_t vocab_size() const;

  std::int64_t special_tokens_per_text() const;

  // Whether tokenizer.json lists the id as a special token.
  bool is_special(std::int32_t id) const;

 private:
  std::shared_ptr<const Pipeline> pipeline_;
  std::optional<std::int64_t> model_max_length_;
  std::optional<std::int64_t> max_seq_length_;
};

}  // namespace stft::tokenizer
