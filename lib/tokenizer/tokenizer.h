// Text to token ids as HF tokenizers 0.23 does it, from the tokenizer files of a model directory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/post_processor.h"
#include "tokenizer/tokenizer_policy.h"

namespace stft::tokenizer {

class Pipeline;
struct ConfigFiles;

// Immutable; copies share everything; every member is safe on any number of threads.
//
// Texts are single texts (no pairs). The lengths in tokenizer.json are ignored: `max_length` counts the special tokens
// and cuts the text on the policy's truncation side; 0 or less: no truncation; less than special_tokens_per_text(): the
// special tokens alone. Ill-formed UTF-8 is read as U+FFFD, one for each maximal ill-formed part. UserError: a text
// over 16 MiB.
class Tokenizer {
 public:
  // The tokenizer that transformers 5.24 and sentence-transformers 6.2 make of the directory (assembly.h), from
  // tokenizer.json, else from the vocabulary of its class, and the small files beside them. UserError, naming the path
  // and the key, line or byte, when a file is missing or malformed or asks for a component that is not available.
  static Tokenizer load(const std::string& model_directory);

  // The tokenizer.json in `directory` by itself, without special tokens around a text: what sentence-transformers'
  // StaticEmbedding uses. Its truncation is the policy's model_max_length. UserError as load().
  static Tokenizer load_bare(const std::string& directory);

  // For a pipeline put together elsewhere.
  Tokenizer(std::shared_ptr<const Pipeline> pipeline, TokenizerPolicy policy);

  // Special tokens included.
  std::vector<std::int32_t> encode_ids(std::string_view text, std::int64_t max_length) const;

  // The same ids with their strings and offsets (code points of `text`).
  Encoding encode(std::string_view text, std::int64_t max_length) const;

  const TokenizerPolicy& policy() const { return *policy_; }

  std::optional<std::int64_t> model_max_length() const { return policy_->model_max_length; }
  std::optional<std::int64_t> max_seq_length() const { return policy_->max_seq_length; }

  // One more than the largest id: what an embedding table needs.
  std::int64_t vocab_size() const;

  std::int64_t special_tokens_per_text() const;

  // Whether the id is an added token that is special.
  bool is_special(std::int32_t id) const;

 private:
  enum class SpecialTokenUse { kAsConfigured, kNone };
  static Tokenizer load_from(const ConfigFiles& files, SpecialTokenUse use);

  std::shared_ptr<const Pipeline> pipeline_;
  std::shared_ptr<const TokenizerPolicy> policy_;
};

}  // namespace stft::tokenizer
