// Text as code points that know where they came from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
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

// The code points alone.
void append_utf8(std::span<const AlignedChar> text, std::string& utf8);

// Where `pattern`, which is not empty, occurs in the text, from the left and without overlap.
std::vector<Span> occurrences(std::span<const AlignedChar> text, std::u32string_view pattern);

// A code point of a rewritten text. `change` is how HF tokenizers counts it: 1 inserted, 0 replaces the next old code
// point, -n replaces it and swallows n more.
struct RewrittenChar {
  char32_t value = 0;
  int change = 0;
};

// The rewritten text with the alignments that follow from the counts alone, also where marks were reordered: an
// inserted code point has those of the old one before it. `old` is not empty. Rewritten: RewrittenChar or a type
// derived from it.
template <typename Rewritten>
AlignedText realigned(const AlignedText& old, const std::vector<Rewritten>& rewritten) {
  AlignedText result;
  result.reserve(rewritten.size());
  std::size_t position = 0;
  for (const Rewritten& c : rewritten) {
    const bool inserted = c.change > 0;
    const std::size_t source = std::min(inserted && position > 0 ? position - 1 : position, old.size() - 1);
    result.push_back({c.value, old[source].begin, old[source].end});
    if (!inserted) {
      position += 1 + static_cast<std::size_t>(-c.change);
    }
  }
  return result;
}

// `prefix` before a text that is not empty, aligned with its first code point.
AlignedText prepended(std::u32string_view prefix, std::span<const AlignedChar> text);

}  // namespace stft::tokenizer
