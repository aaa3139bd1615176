// Normalizers of tokenizer.json: text to text, with the alignment that HF tokenizers 0.23 would report.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tokenizer/aligned_text.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

namespace stft::tokenizer {

// Cleaning, then blanks around Chinese characters, then canonical decomposition without nonspacing marks, then lower
// case; each only when its switch is on.
struct BertNormalizer {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;  // tokenizer.json's null means "as lowercase": resolved by the loader
  bool lowercase = true;
};

struct UnicodeNormalizer {  // NFD, NFKD, NFC, NFKC
  Decomposition decomposition = Decomposition::kCanonical;
  bool compose = false;
};

struct LowercaseNormalizer {};

struct StripAccentsNormalizer {};  // drops combining marks; decomposes nothing itself

struct StripNormalizer {  // white space at the ends of the text
  bool left = true;
  bool right = true;
};

// The loader refuses longer contents.
inline constexpr std::size_t kMaxReplacedChars = 1024;

struct ReplaceNormalizer {                      // every occurrence, from the left, not overlapping
  std::variant<std::u32string, Regex> pattern;  // a string is not empty
  std::u32string content;
};

struct PrependNormalizer {  // before every text that is not empty
  std::u32string prefix;
};

struct CharsmapNormalizer {  // Precompiled
  Charsmap charsmap;
};

struct ByteLevelNormalizer {};  // the text in the byte-level alphabet

struct NmtNormalizer {};  // some controls removed, other white space and U+FFFD to blanks

using NormalizerStep =
    std::variant<BertNormalizer, UnicodeNormalizer, LowercaseNormalizer, StripAccentsNormalizer, StripNormalizer,
                 ReplaceNormalizer, PrependNormalizer, CharsmapNormalizer, ByteLevelNormalizer, NmtNormalizer>;

// The steps of a tokenizer.json, sequences flattened; no step leaves the text as it is. Every step takes time linear in
// the text (n log n in a run of combining marks), regular expressions excepted. UserError when one gives up on the
// text, or when the text grows to more than 64 times its length.
class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  AlignedText normalize(AlignedText text) const;
  std::string normalize(std::string_view utf8) const;

  // Whether normalizing "a" + x + "b" gives the three results in a row for every ASCII character x and all texts a, b.
  bool is_local_on_ascii() const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace stft::tokenizer
