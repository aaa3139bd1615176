#include "io/utf8.h"

#include <cstdint>
#include <cstring>

namespace stft::io {
namespace {

// Length of the well-formed sequence that starts at `bytes` (at most `left` bytes long), 0 when it is malformed.
// The ranges are those of table 3-7 of the Unicode standard.
std::size_t sequence_length(const unsigned char* bytes, std::size_t left) {
  const unsigned char lead = bytes[0];
  if (lead < 0x80) return 1;
  std::size_t length = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  }
  if (length == 0 || length > left || bytes[1] < low || bytes[1] > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((bytes[i] & 0xC0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

std::optional<std::size_t> first_invalid_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  std::size_t position = 0;
  while (position < text.size()) {
    // Eight ASCII bytes at a time: most text is ASCII.
    while (position + 8 <= text.size()) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes + position, 8);
      if ((word & 0x8080808080808080ULL) != 0) break;
      position += 8;
    }
    if (position == text.size()) break;
    const std::size_t length = sequence_length(bytes + position, text.size() - position);
    if (length == 0) return position;
    position += length;
  }
  return std::nullopt;
}

}  // namespace stft::io
