// A sentencepiece model file: its pieces and the few settings that the conversion to tokenizer.json needs.
//
// The file is read here, not by the sentencepiece library, for two measured reasons. Python's transformers 5.24 never
// encodes with sentencepiece: it converts the file, and the ids of the conversion are those that a model was trained
// and is served with. They differ from sentencepiece's own (small models, 2,000 plain English texts and 5,000 random
// Unicode strings): ALBERT 26 % and 43 %, Llama 0 and 13 %, T5, XLM-R and CamemBERT 0 and 2 %, Gemma none. And the
// library (0.1.97) dies on a damaged charsmap.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stft::tokenizer {

enum class SentencePieceType { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct SentencePieceEntry {
  std::string piece;  // well-formed UTF-8, 1 to 1024 bytes, unlike all others
  float score = 0;    // finite
  SentencePieceType type = SentencePieceType::kNormal;
};

enum class SentencePieceAlgorithm { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };

struct SentencePieceFile {
  std::vector<SentencePieceEntry> pieces;
  SentencePieceAlgorithm algorithm = SentencePieceAlgorithm::kUnigram;
  bool byte_fallback = false;
  std::int64_t unk_id = 0;
  std::int64_t bos_id = 1;  // below 0: none
  std::int64_t eos_id = 2;
  std::string unk_piece = "<unk>";
  std::string bos_piece = "<s>";
  std::string eos_piece = "</s>";
  std::string charsmap;  // as in tokenizer.json's Precompiled, not in base64; empty: none
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// UserError naming the path, and the byte where there is one, for anything else than a sentencepiece model.
SentencePieceFile read_sentencepiece_file(const std::string& path);

}  // namespace stft::tokenizer
