// The sets of code points that HF tokenizers 0.23 acts on (measured; see test/golden/tokenizer/make_unicode_tables.py:
// that library mixes several Unicode versions, so no single Unicode version yields its ids). Ranges ascend.
#pragma once

#include <span>

namespace stft::tokenizer {

struct CodePointRange {
  char32_t first = 0;
  char32_t last = 0;  // inclusive
};

// A lower case that differs from libutf8proc's simple mapping; second is 0 when there is only one code point.
struct LowercaseException {
  char32_t upper = 0;
  char32_t first = 0;
  char32_t second = 0;
};

std::span<const CodePointRange> removed_by_cleaning();   // BertNormalizer clean_text: controls, format, private use
std::span<const CodePointRange> punctuation();           // ASCII punctuation and category P
std::span<const CodePointRange> nonspacing_marks();      // BertNormalizer strip_accents
std::span<const CodePointRange> combining_marks();       // StripAccents
std::span<const CodePointRange> word_characters();       // \w of the Whitespace pre-tokenizer and of single_word
std::span<const CodePointRange> white_space();           // White_Space
std::span<const CodePointRange> chinese_characters();    // BertNormalizer handle_chinese_chars
std::span<const CodePointRange> combining_class_zero();  // treated as starters although utf8proc has a class for them
std::span<const CodePointRange> not_decomposed();        // kept whole although utf8proc decomposes them
std::span<const CodePointRange> letters();               // \p{L} of a regular expression (Oniguruma)
std::span<const CodePointRange> numbers();               // \p{N} of a regular expression
std::span<const CodePointRange> word_difference();       // either in word_characters or in a regular expression's \w
std::span<const CodePointRange> numeric_difference();    // isolated by the Digits pre-tokenizer, but not numbers
std::span<const LowercaseException> lowercase_exceptions();

}  // namespace stft::tokenizer
