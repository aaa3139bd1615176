// What a model directory says about its tokenizer, brought together as one tokenizer.json.
//
// A directory's tokenizer is, in this order: tokenizer.json; vocab.txt, vocab.json with merges.txt, or a sentencepiece
// model (tokenizer.model, spiece.model, sentencepiece.bpe.model), whichever the tokenizer class reads. The result is
// what transformers 5.24 builds from the same files: ids equal those of AutoTokenizer.from_pretrained.
#pragma once

#include <string>
#include <vector>

#include "io/json.h"
#include "tokenizer/config_files.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer_class.h"

namespace stft::tokenizer {

struct AssembledTokenizer {
  io::Json stages;     // model, normalizer, pre_tokenizer, post_processor, added_tokens, as in a tokenizer.json
  std::string origin;  // the path of the vocabulary, for messages
  ChosenClass chosen;
  NamedTokens tokens;
  std::vector<std::string> files;     // paths that had a say
  std::vector<std::string> warnings;  // where two of them disagree: both, the keys, and which one counts
};

// UserError naming path (and line, byte or key) for what is missing, malformed or not available.
AssembledTokenizer assemble_tokenizer(const ConfigFiles& files);

}  // namespace stft::tokenizer
