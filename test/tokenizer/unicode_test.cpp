// Grapheme clusters, and the character properties of regular expressions, where Unicode versions and libraries differ.
#include <catch2/catch.hpp>

#include "tokenizer/grapheme.h"
#include "tokenizer/regex.h"
#include "tokenizer/regex_properties.h"
#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

// The clusters of a text, in numbers of code points.
std::vector<std::size_t> clusters(std::u32string_view text) {
  std::string utf8;
  for (const char32_t c : text) {
    append_utf8(c, utf8);
  }
  std::vector<std::size_t> sizes;
  for (std::size_t begin = 0; begin < utf8.size();) {
    const std::size_t end = grapheme_end(utf8, begin);
    std::size_t count = 0;
    for (std::size_t i = begin; i < end; i += decode_char(utf8, i).length) {
      ++count;
    }
    sizes.push_back(count);
    begin = end;
  }
  return sizes;
}

using Sizes = std::vector<std::size_t>;

TEST_CASE("Grapheme clusters end where HF's do") {
  CHECK(clusters(U"abc") == Sizes{1, 1, 1});
  CHECK(clusters(U"\r\n\n\r") == Sizes{2, 1, 1});
  CHECK(clusters(U"e\u0301\u0302x\u0301") == Sizes{3, 2});
  CHECK(clusters(U"\n\u0301\u0302") == Sizes{1, 2});                  // controls join nothing
  CHECK(clusters(U"\u200b\u0301\u00ad\u0301") == Sizes{1, 1, 1, 1});  // nor do these
  CHECK(clusters(U"\u0600a\u0301 \u0600\n") == Sizes{3, 1, 1, 1});    // a prefix
  CHECK(clusters(U"\u1100\u1161\u11a8\u1100 \uac00\u11a8 \uac01\u1161") == Sizes{3, 1, 1, 2, 1, 1, 1});  // Hangul
  CHECK(clusters(U"\u0915\u094d\u0937 \u0915\u094d\u200d\u0937 \u0915\u0937") == Sizes{3, 1, 4, 1, 1, 1});
  CHECK(clusters(U"\u00a9\u200d\u263a x\u200d\u263a") == Sizes{3, 1, 2, 1});  // pictographs
  CHECK(clusters(U"\u263a\ufe0f\u200d\u263a\u263a\u200d\u200d\u263a") == Sizes{4, 3, 1});
  CHECK(clusters(U"\u0e33\u0e33") == Sizes{2});
}

TEST_CASE("Regular expressions know the letters of HF's Oniguruma") {
  const auto matches = [](const char* pattern, char32_t c) {
    std::string text;
    append_utf8(c, text);
    return Regex(pattern).find_all(std::string_view(text)).size() == 1;
  };
  for (const char32_t c : {U'a', U'\u00e9', U'\u4e2d', U'\U000323af', U'\U0001e030', U'\u1c89', U'\U00013460'}) {
    CAPTURE(static_cast<unsigned>(c));
    CHECK(matches("\\p{L}", c));
    CHECK(matches("\\p{Letter}", c));
    CHECK(matches("\\w", c));
    CHECK(matches("[^\\W]", c));
    CHECK(matches("\\b.\\b", c));
    CHECK_FALSE(matches("[^\\s\\p{L}\\p{N}]", c));
    CHECK_FALSE(matches("\\P{L}", c));
    CHECK(has_flag(c, kLetter));
    CHECK(has_flag(c, kRegexWord));
  }
  CHECK(matches("\\p{N}", U'\U00010d40'));
  CHECK(matches("\\d", U'\U00010d40'));
  CHECK(matches("\\w", U'\u00bd'));
  CHECK_FALSE(matches("[\\w]", U'\u00bd'));  // as in Oniguruma
  CHECK(matches("(?i:s)", U'\u017f'));
  CHECK(has_flag(U'\u00bd', kNumber));
  CHECK(has_flag(U'\U00011de0', kNumeric));
  CHECK_FALSE(has_flag(U'\U00011de0', kNumber));
  CHECK_FALSE(has_flag(0x110000, kLetter));
}

TEST_CASE("Patterns are rewritten where they name properties only") {
  CHECK(with_own_properties("a|[^bc]\\\\w") == "a|[^bc]\\\\w");
  CHECK(with_own_properties("\\w[\\w]") == "\\p{OwnWord}[\\p{OwnWordInClass}]");
  CHECK(with_own_properties("[]\\w]\\W") == "[]\\p{OwnWordInClass}]\\P{OwnWord}");
  CHECK(with_own_properties("\\p{^Lowercase_Letter}\\P{Han}\\p{L") == "\\p{^Ll}\\P{Han}\\p{L");
  CHECK(with_own_properties("\\") == "\\");
}

}  // namespace
}  // namespace stft::tokenizer
