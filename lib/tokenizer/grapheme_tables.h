// Properties that decide where extended grapheme clusters end, as HF tokenizers 0.23 sees them (measured; see
// test/golden/tokenizer/make_unicode_tables.py).
#pragma once

#include <cstdint>
#include <span>

namespace stft::tokenizer {

enum GraphemeProperty : std::uint16_t {
  kControl = 1 << 0,       // joins nothing (CR and LF too, but for CR LF)
  kJoins = 1 << 1,         // joins what is before it
  kPrepend = 1 << 2,       // joins what is behind it
  kTransparent = 1 << 3,   // may stand between a pictograph and a zero width joiner
  kPictographic = 1 << 4,  // joins a pictograph and a zero width joiner before it
  kHangulL = 1 << 5,
  kHangulV = 1 << 6,
  kHangulT = 1 << 7,
  kHangulLV = 1 << 8,
  kHangulLVT = 1 << 9,
  kIndicConsonant = 1 << 10,
  kIndicLinker = 1 << 11,
  kIndicExtend = 1 << 12,
};

struct GraphemeRange {
  char32_t first = 0;
  char32_t last = 0;  // inclusive
  std::uint16_t properties = 0;
};

// Ascending; code points in none of them have no property.
std::span<const GraphemeRange> grapheme_ranges();

}  // namespace stft::tokenizer
