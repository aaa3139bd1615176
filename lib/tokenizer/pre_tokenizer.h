// Pre-tokenizers of tokenizer.json: where a normalized text is cut into the words that the model sees, and how those
// are written.
#pragma once

#include <span>
#include <variant>
#include <vector>

#include "tokenizer/aligned_text.h"
#include "tokenizer/regex.h"
#include "tokenizer/split_parts.h"
#include "tokenizer/word_pattern.h"

namespace stft::tokenizer {

struct BertPreTokenizer {};  // white space removed, then each punctuation character on its own

struct WhitespacePreTokenizer {};  // runs of word characters and runs of other characters; white space removed

struct WhitespaceSplitPreTokenizer {};  // white space removed

struct PunctuationPreTokenizer {
  SplitBehavior behavior = SplitBehavior::kIsolated;
};

struct DigitsPreTokenizer {
  bool individual = false;  // each digit on its own; else each run of digits
};

struct CharDelimiterPreTokenizer {
  char32_t delimiter = U' ';  // removed
};

// Words of a known pattern, each on its own.
struct WordPatternPreTokenizer {
  WordPattern pattern = WordPattern::kGpt2;
};

struct SplitPreTokenizer {
  std::variant<std::u32string, Regex> pattern;  // a string is not empty
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // what lies between the matches is the delimiter
};

// How sentencepiece writes a blank, U+2581.
inline constexpr char32_t kMetaspaceChar = 0x2581;
inline constexpr const char* kMetaspace = "\xE2\x96\x81";

enum class PrependScheme { kNever, kFirst, kAlways };

// Blanks become `replacement`, which is also put before words (kFirst: before those at the begin of the input).
struct MetaspacePreTokenizer {
  char32_t replacement = kMetaspaceChar;
  PrependScheme scheme = PrependScheme::kAlways;
  bool splits = true;  // before each replacement character
};

// A blank before each word that has none; then the words written in the byte-level alphabet.
struct ByteLevelPreTokenizer {
  bool add_prefix_space = true;
  bool splits = true;  // by GPT-2's pattern
};

using PreTokenizerStep =
    std::variant<BertPreTokenizer, WhitespacePreTokenizer, WhitespaceSplitPreTokenizer, PunctuationPreTokenizer,
                 DigitsPreTokenizer, CharDelimiterPreTokenizer, WordPatternPreTokenizer, SplitPreTokenizer,
                 MetaspacePreTokenizer, ByteLevelPreTokenizer>;

// A text cut into words; none is empty, and they ascend without overlapping.
struct WordText {
  AlignedText text;
  std::vector<Span> words;
};

// Steps one after the other, each on the words of the one before; no step leaves the text in one piece.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {}

  // UserError when a regular expression gives up on the text.
  WordText split(AlignedText text) const;

  // Whether this is BertPreTokenizer alone.
  bool is_bert() const { return steps_.size() == 1 && std::holds_alternative<BertPreTokenizer>(steps_.front()); }

 private:
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace stft::tokenizer
