#include "tokenizer/aligned_text.h"

#include <functional>

#include "tokenizer/unicode.h"

namespace stft::tokenizer {

AlignedText aligned_text(std::string_view utf8, std::uint32_t first_index) {
  AlignedText text;
  text.reserve(utf8.size());
  std::uint32_t index = first_index;
  for (std::size_t position = 0; position < utf8.size(); ++index) {
    const DecodedChar c = decode_char(utf8, position);
    text.push_back({c.value, index, index + 1});
    position += c.length;
  }
  return text;
}

void append_utf8(std::span<const AlignedChar> text, std::string& utf8) {
  utf8.reserve(utf8.size() + text.size());
  for (const AlignedChar& c : text) {
    if (c.value < 0x80) {
      utf8.push_back(static_cast<char>(c.value));
    } else {
      append_utf8(c.value, utf8);
    }
  }
}

std::vector<Span> occurrences(std::span<const AlignedChar> text, std::u32string_view pattern) {
  std::vector<Span> found;
  if (pattern.size() == 1) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i].value == pattern.front()) {
        found.push_back({i, i + 1});
      }
    }
    return found;
  }
  std::u32string values(text.size(), U'\0');
  std::transform(text.begin(), text.end(), values.begin(), [](const AlignedChar& c) { return c.value; });
  const std::boyer_moore_horspool_searcher searcher(pattern.begin(), pattern.end());
  for (auto position = values.cbegin(); position != values.cend();) {
    const auto [match, match_end] = searcher(position, values.cend());
    if (match == values.cend()) {
      break;
    }
    found.push_back(
        {static_cast<std::size_t>(match - values.cbegin()), static_cast<std::size_t>(match_end - values.cbegin())});
    position = match_end;
  }
  return found;
}

AlignedText prepended(std::u32string_view prefix, std::span<const AlignedChar> text) {
  AlignedText result;
  result.reserve(prefix.size() + text.size());
  for (const char32_t c : prefix) {
    result.push_back({c, text.front().begin, text.front().end});
  }
  result.insert(result.end(), text.begin(), text.end());
  return result;
}

}  // namespace stft::tokenizer
