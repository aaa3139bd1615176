// Text as code points that know where they came from.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace stft::tokenizer {

// One code point of a normalized text and the code points [begin, end) of the input text that it stands for.
struct AlignedChar {
  char32_t value = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

using AlignedText = std::vector<AlignedChar>;

// A range of indices, end exclusive.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Well-formed UTF-8 before any normalization; its first code point is number `first_index` of the input text.
AlignedText aligned_text(std::string_view utf8, std::uint32_t first_index);

}  // namespace stft::tokenizer
