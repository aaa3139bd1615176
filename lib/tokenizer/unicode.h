// Code points and the properties of them that tokenizers use. Sets and mappings equal those of HF tokenizers 0.23,
// which are not those of one Unicode version (unicode_tables.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stft::tokenizer {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

enum CharFlag : std::uint16_t {
  kRemovedByCleaning = 1 << 0,
  kPunctuation = 1 << 1,
  kNonspacingMark = 1 << 2,
  kCombiningMark = 1 << 3,
  kWordCharacter = 1 << 4,
  kWhiteSpace = 1 << 5,  // also what \s of a regular expression matches
  kChineseCharacter = 1 << 6,
  kLetter = 1 << 7,     // \p{L} of a regular expression
  kNumber = 1 << 8,     // \p{N} of a regular expression
  kNumeric = 1 << 9,    // what the Digits pre-tokenizer isolates
  kRegexWord = 1 << 10  // \w of a regular expression; kWordCharacter differs in 7 code points
};

// All flags of a code point; 0 above U+10FFFF.
std::uint16_t char_flags(char32_t c);
inline bool has_flag(char32_t c, CharFlag flag) {
  return (char_flags(c) & flag) != 0;
}

struct DecodedChar {
  char32_t value = 0;
  std::size_t length = 1;  // bytes
};

// The code point at `position` < text.size() of well-formed UTF-8.
DecodedChar decode_char(std::string_view text, std::size_t position);

// The code point that ends just before `position` > 0 of well-formed UTF-8.
char32_t decode_char_before(std::string_view text, std::size_t position);

// Bytes of the code point in UTF-8.
inline std::size_t utf8_length(char32_t c) {
  return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

void append_utf8(char32_t c, std::string& text);

// For messages: at most the first 80 bytes of well-formed UTF-8, with "..." where something was left out.
std::string shortened(std::string_view utf8);

// Code points of well-formed UTF-8.
std::size_t count_chars(std::string_view utf8);

// `text` with every maximal ill-formed part replaced by U+FFFD; nothing when `text` is well formed already.
std::optional<std::string> replace_invalid_utf8(std::string_view text);

enum class Decomposition { kCanonical, kCompatible };

// The few code points that one maps to.
struct MappedChars {
  std::array<char32_t, 20> values{};
  int count = 0;
};

// Full lower case, without context (a final sigma becomes U+03C3 like any other).
MappedChars lowercase(char32_t c);

// Full decomposition of one code point, not reordered.
MappedChars decompose(char32_t c, Decomposition kind);

// Canonical combining class; 0: a starter.
int combining_class(char32_t c);

// The primary composite of a pair, if there is one.
std::optional<char32_t> compose(char32_t first, char32_t second);

}  // namespace stft::tokenizer
