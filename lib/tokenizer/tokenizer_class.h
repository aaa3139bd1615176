// The tokenizer classes of transformers 5.24 that are more than their tokenizer.json: that library builds their stages
// anew from the vocabulary and tokenizer_config.json, whatever the other stages of tokenizer.json say.
#pragma once

#include <string>
#include <vector>

#include "tokenizer/components.h"
#include "tokenizer/config_files.h"

namespace stft::tokenizer {

enum class TokenizerClass {
  kBert,  // with the classes that derive from it
  kMpnet,
  kRoberta,
  kGpt2,
  kQwen2,
  kClip,
  kLlama,
  kGemma,
  kT5,
  kXlmRoberta,
  kCamembert,
  kAlbert,
  kDebertaV2,
  kBackend,  // TokenizersBackend and every class that is not named here: tokenizer.json as it stands
};

// What a class reads where there is no tokenizer.json.
enum class VocabularyKind { kVocabTxt, kVocabAndMerges, kSentencePiece };

// A special token that has a name, and what it is called in the class's own defaults.
struct NamedDefault {
  std::string name;  // "bos_token"
  std::string content;
  bool lstrip = false;
};

struct ChosenClass {
  TokenizerClass id = TokenizerClass::kBackend;
  std::string name = "TokenizersBackend";
  std::string stated_by;  // "<path>: <key>"; empty: nothing names a class
};

// The class that AutoTokenizer.from_pretrained takes: tokenizer_class of tokenizer_config.json, else of config.json,
// set against the class of config.json's model_type. kBackend with stated_by empty when none of them says anything.
ChosenClass choose_class(const ConfigFiles& files);

// Whether transformers builds the stages of a class anew that is kBackend here, so that its ids may be others.
bool is_rebuilt_elsewhere(const std::string& name);

VocabularyKind vocabulary_kind(TokenizerClass id);
// The model that tokenizer.json must have.
ModelKind model_kind(TokenizerClass id);
std::vector<NamedDefault> named_defaults(TokenizerClass id);
// Whether the class pads on the left when no file says otherwise.
bool pads_left(TokenizerClass id);

}  // namespace stft::tokenizer
