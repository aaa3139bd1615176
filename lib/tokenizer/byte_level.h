// The alphabet of byte-level vocabularies (GPT-2): every byte is written as one printable code point.
#pragma once

#include <span>

#include "tokenizer/aligned_text.h"

namespace stft::tokenizer {

// How these vocabularies write a blank (U+0020).
inline constexpr char32_t kByteLevelBlank = 0x0120;

// The code point that stands for a byte: itself where printable, else from U+0100 on.
char32_t byte_level_char(unsigned char byte);

// Appends one code point for each byte of the UTF-8 of `text`; all bytes of a code point have its alignment.
void append_byte_level(std::span<const AlignedChar> text, AlignedText& result);

}  // namespace stft::tokenizer
