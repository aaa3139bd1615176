// A sentencepiece model as the stages of a tokenizer.json, the way transformers 5.24 converts it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/json.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/sentencepiece_file.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer_class.h"

namespace stft::tokenizer {

// Vocabulary (and merges) for a class that has its own stages.
struct ConvertedVocabulary {
  io::Json vocab;
  io::Json merges;  // null for Unigram
};
ConvertedVocabulary convert_vocabulary(const SentencePieceFile& file, TokenizerClass id, const NamedTokens& tokens,
                                       std::int64_t extra_ids);

// The charsmap in base64, or null.
io::Json charsmap_json(const SentencePieceFile& file);

// The control and user-defined pieces, which become added tokens.
std::vector<AddedToken> added_pieces(const SentencePieceFile& file);

// bos, eos and unk as the file names them, for kBackend.
std::vector<NamedDefault> named_pieces(const SentencePieceFile& file);

// Normalizer, pre-tokenizer and model for kBackend, which follows the file's own settings. `renamed`: new contents of
// pieces by id (added_tokens_decoder); `legacy`: every fragment between added tokens gets a blank in front, not only
// the first.
io::Json backend_stages(const SentencePieceFile& file, const std::map<std::int32_t, std::string>& renamed, bool legacy);

}  // namespace stft::tokenizer
