// The stages of tokenizer.json as a tokenizer class of transformers 5.24 makes them, as JSON for components.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/json.h"
#include "tokenizer/config_files.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/tokenizer_class.h"

namespace stft::tokenizer {

// What tokenizer_config.json sets and the classes read; each class looks at some of them.
struct ClassOptions {
  bool do_lower_case = true;
  io::Json strip_accents;  // null: as do_lower_case
  bool tokenize_chinese_chars = true;
  bool add_prefix_space = false;
  bool trim_offsets = true;
  bool legacy = false;
  bool keep_accents = false;
  bool split_by_punct = false;
  std::int64_t extra_ids = 100;
};

// UserError naming tokenizer_config.json and the key.
ClassOptions read_class_options(const ConfigFiles& files, TokenizerClass id);

// `charsmap`: a string in base64, or null. Not for kBackend.
io::Json class_normalizer(TokenizerClass id, const ClassOptions& options, const io::Json& charsmap);
io::Json class_pre_tokenizer(TokenizerClass id, const ClassOptions& options);

// The model around a vocabulary (and merges, for BPE).
struct ModelParts {
  io::Json vocab;
  io::Json merges;
  std::string unk_token;
};
io::Json class_model(TokenizerClass id, ModelParts parts);

// The special tokens by name, with their ids.
struct NamedSpecials {
  SpecialToken bos, eos, sep, cls;
};
// Null when the class leaves them to tokenizer.json, or to add_bos_token and add_eos_token.
io::Json class_post_processor(TokenizerClass id, const ClassOptions& options, const NamedSpecials& specials);

// A TemplateProcessing for single texts.
io::Json template_processing(const std::vector<SpecialToken>& before, const std::vector<SpecialToken>& after);

}  // namespace stft::tokenizer
