// The special and added tokens that the files beside a vocabulary name, as transformers 5.24 takes them.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/config_files.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/tokenizer_class.h"

namespace stft::tokenizer {

struct StatedId {
  std::int32_t id = 0;
  std::string path;
};

struct NamedTokens {
  std::map<std::string, std::string> named;    // "eos_token" -> "</s>"
  std::vector<AddedToken> added;               // in the order in which they are added; their ids are not set
  std::map<std::string, StatedId> stated_ids;  // what a file says about the id of a token

  // The content of a named token; nothing when there is none.
  std::optional<std::string> find(const std::string& name) const;
  // Whether one of `tokens` is the one of one of the names.
  bool is_named_in(const std::vector<SpecialToken>& tokens, std::initializer_list<const char*> names) const;
};

// What a tokenizer has before the files beside it are read.
struct TokenSources {
  std::vector<NamedDefault> defaults;
  std::vector<AddedToken> of_tokenizer_json;  // with ids
  std::vector<AddedToken> extra;              // used where the files name no extra special tokens
  bool extends_tokenizer_json = false;        // tokenizer.json's own tokens come first, with the flags that they have
};

// tokenizer_config.json (named tokens, added_tokens_decoder, extra_special_tokens) and, where it has no
// added_tokens_decoder, special_tokens_map.json and added_tokens.json. UserError naming file and key.
NamedTokens read_special_tokens(const ConfigFiles& files, const TokenSources& sources);

// What a vocabulary knows before tokens are added.
struct VocabularyLookup {
  std::function<std::optional<std::int32_t>(const std::string&)> id_of;
  std::int32_t size = 0;
};

// Gives the added tokens their ids: those of the vocabulary, or the next free ones behind it.
void assign_ids(std::vector<AddedToken>& tokens, const VocabularyLookup& vocabulary);

}  // namespace stft::tokenizer
