// The precompiled character map of sentencepiece models, applied as HF tokenizers does: grapheme cluster by grapheme
// cluster, and with the shortest key that a piece begins with (sentencepiece itself takes the longest).
//
// Format (sentencepiece's builder, darts-clone double array), little endian: u32 size of the array in bytes; the array
// of u32 units; zero-terminated UTF-8 replacements, found by their offset.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/aligned_text.h"

namespace stft::tokenizer {

// Immutable; copies share everything; safe on any number of threads.
class Charsmap {
 public:
  // The decoded bytes of tokenizer.json's precompiled_charsmap. UserError when they are malformed: a size that does not
  // fit, replacements that are not UTF-8.
  explicit Charsmap(std::string_view bytes);

  AlignedText normalize(AlignedText text) const;

 private:
  struct Table {
    std::vector<std::uint32_t> units;
    std::string replacements;
  };

  // What stands for a piece whose begin is a key; nothing when no key is.
  std::optional<std::u32string> replacement(std::string_view piece) const;

  std::shared_ptr<const Table> table_;
  // For ASCII characters on their own, computed once: the only key at the begin of an ASCII text is its first byte.
  std::vector<std::optional<std::u32string>> ascii_;
};

// The bytes of padded base64; nothing when it is malformed.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace stft::tokenizer
