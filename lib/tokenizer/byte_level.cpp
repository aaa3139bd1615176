#include "tokenizer/byte_level.h"

#include <array>
#include <string>

#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

constexpr std::array<char32_t, 256> alphabet() {
  std::array<char32_t, 256> chars{};
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    chars[byte] = printable ? byte : next++;
  }
  return chars;
}

constexpr std::array<char32_t, 256> kAlphabet = alphabet();
static_assert(kAlphabet[' '] == kByteLevelBlank);

}  // namespace

char32_t byte_level_char(unsigned char byte) {
  return kAlphabet[byte];
}

void append_byte_level(std::span<const AlignedChar> text, AlignedText& result) {
  std::string utf8;
  for (const AlignedChar& c : text) {
    if (c.value < 0x80) {
      result.push_back({kAlphabet[c.value], c.begin, c.end});
      continue;
    }
    utf8.clear();
    append_utf8(c.value, utf8);
    for (const char byte : utf8) {
      result.push_back({kAlphabet[static_cast<unsigned char>(byte)], c.begin, c.end});
    }
  }
}

}  // namespace stft::tokenizer
