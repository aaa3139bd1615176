// The stages of tokenizer.json from JSON. `origin`: the path of the file, for messages. UserError names the path, the
// component and the key; a component that is not available is named: "<path>: normalizer type 'X' is not
// available".
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/json.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"

namespace stft::tokenizer {

// The value of "normalizer", null for none.
std::vector<NormalizerStep> parse_normalizer(const io::Json& json, const std::string& origin);

// The value of "pre_tokenizer", null for none.
std::vector<PreTokenizerStep> parse_pre_tokenizer(const io::Json& json, const std::string& origin);

enum class ModelKind { kWordPiece, kBpe, kUnigram, kWordLevel };

// As tokenizer.json writes it.
std::string name_of(ModelKind kind);

// Of the value of "model"; files of old versions have no "type" there: the keys tell. UserError for other types.
ModelKind model_kind_of(const io::Json& json, const std::string& origin);

// What the value of "model" asks for that is not done: a dropout of merges. Whole sentences.
std::vector<std::string> model_warnings(const io::Json& json, const std::string& origin);

// The value of "model".
std::unique_ptr<const Model> parse_model(const io::Json& json, const std::string& origin);

// One entry of "added_tokens", but for its id. `origin`: where it stands.
AddedToken parse_added_token(const io::Json& entry, const std::string& origin);

struct AddedTokenList {
  std::vector<AddedToken> tokens;     // contents differ from each other and are not empty
  std::vector<std::string> warnings;  // whole sentences
};

// The value of "added_tokens", null for none. Like HF tokenizers, a token that the vocabulary lacks gets the next free
// id behind the vocabulary, whatever the file says, and a repeated token is skipped; there is a warning about either.
AddedTokenList parse_added_tokens(const io::Json& json, const Model& model, const std::string& origin);

// The value of "post_processor", null for none.
PostProcessor parse_post_processor(const io::Json& json, const std::string& origin);

}  // namespace stft::tokenizer
