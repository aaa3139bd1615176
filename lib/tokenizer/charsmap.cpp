#include "tokenizer/charsmap.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "io/utf8.h"
#include "tokenizer/grapheme.h"
#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

constexpr std::size_t kAsciiCount = 0x80;
// Clusters of fewer bytes than this are looked up whole, others code point by code point.
constexpr std::size_t kLongCluster = 6;

// Longer replacements are cut: real ones have at most 18 code points.
constexpr std::size_t kMaxChars = 1024;

// The fields of a darts-clone unit.
std::uint32_t unit_offset(std::uint32_t unit) {
  return (unit >> 10) << ((unit & (1U << 9)) >> 6);
}
std::uint32_t unit_label(std::uint32_t unit) {
  return unit & ((1U << 31) | 0xFFU);
}
bool unit_has_leaf(std::uint32_t unit) {
  return ((unit >> 8) & 1U) != 0;
}
std::uint32_t unit_value(std::uint32_t unit) {
  return unit & ((1U << 31) - 1U);
}

// `count` code points replaced by others, counted as HF tokenizers counts them.
void append_replacement(const std::u32string& replacement, std::size_t count, std::vector<RewrittenChar>& rewritten) {
  const std::size_t kept = std::min(replacement.size(), count);
  for (std::size_t i = 0; i < replacement.size(); ++i) {
    rewritten.push_back({replacement[i], i < kept ? 0 : 1});
  }
  if (replacement.size() < count && !rewritten.empty()) {
    rewritten.back().change -= static_cast<int>(count - replacement.size());
  }
}

}  // namespace

Charsmap::Charsmap(std::string_view bytes) {
  std::uint32_t size = 0;
  if (bytes.size() < sizeof(size)) {
    throw UserError("the charsmap is shorter than its size field");
  }
  std::memcpy(&size, bytes.data(), sizeof(size));
  bytes.remove_prefix(sizeof(size));
  if (size == 0 || size % sizeof(std::uint32_t) != 0 || size > bytes.size()) {
    throw UserError("the charsmap's array of " + std::to_string(size) + " bytes does not fit into it");
  }
  auto table = std::make_shared<Table>();
  table->units.resize(size / sizeof(std::uint32_t));
  std::memcpy(table->units.data(), bytes.data(), size);
  table->replacements = bytes.substr(size);
  if (io::first_invalid_utf8(table->replacements)) {
    throw UserError("the charsmap's replacements are not UTF-8");
  }
  table_ = std::move(table);
  for (std::size_t c = 0; c < kAsciiCount; ++c) {
    ascii_.push_back(replacement(std::string(1, static_cast<char>(c))));
  }
}

std::optional<std::u32string> Charsmap::replacement(std::string_view piece) const {
  const auto& units = table_->units;
  const std::string_view replacements = table_->replacements;
  std::size_t node = unit_offset(units.front());
  for (const char c : piece) {
    const auto byte = static_cast<unsigned char>(c);
    node ^= byte;
    if (byte == 0 || node >= units.size() || unit_label(units[node]) != byte) {
      return std::nullopt;
    }
    const std::uint32_t unit = units[node];
    node ^= unit_offset(unit);
    if (!unit_has_leaf(unit)) {
      continue;
    }
    const std::size_t begin = node < units.size() ? unit_value(units[node]) : replacements.size();
    const bool is_inside =
        begin < replacements.size() && (static_cast<unsigned char>(replacements[begin]) & 0xC0) != 0x80;
    if (!is_inside) {
      return std::nullopt;
    }
    std::u32string result;
    for (std::size_t i = begin; i < replacements.size() && replacements[i] != '\0' && result.size() < kMaxChars;) {
      const DecodedChar decoded = decode_char(replacements, i);
      result.push_back(decoded.value);
      i += decoded.length;
    }
    return result;
  }
  return std::nullopt;
}

AlignedText Charsmap::normalize(AlignedText text) const {
  std::string utf8;
  append_utf8(text, utf8);
  std::vector<RewrittenChar> rewritten;
  rewritten.reserve(text.size());
  bool is_modified = false;
  const auto replace = [&](std::string_view piece, std::size_t chars) {
    const bool is_ascii = piece.size() == 1;
    const auto found = is_ascii ? ascii_[static_cast<unsigned char>(piece.front())] : replacement(piece);
    if (found) {
      append_replacement(*found, chars, rewritten);
      is_modified = true;
    }
    return found.has_value();
  };
  for (std::size_t begin = 0; begin < utf8.size();) {
    const std::size_t end = grapheme_end(utf8, begin);
    const std::string_view cluster = std::string_view(utf8).substr(begin, end - begin);
    const bool is_done = cluster.size() < kLongCluster && replace(cluster, count_chars(cluster));
    for (std::size_t i = 0; i < cluster.size() && !is_done;) {
      const DecodedChar c = decode_char(cluster, i);
      const bool was_tried = c.length == cluster.size();
      if (was_tried || !replace(cluster.substr(i, c.length), 1)) {
        rewritten.push_back({c.value, 0});
      }
      i += c.length;
    }
    begin = end;
  }
  return is_modified ? realigned(text, rewritten) : text;
}

std::optional<std::string> decode_base64(std::string_view text) {
  const auto value_of = [](char c) -> int {
    if (c >= 'A' && c <= 'Z') {
      return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
      return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
      return c - '0' + 52;
    }
    return c == '+' ? 62 : c == '/' ? 63 : -1;
  };
  if (text.size() % 4 != 0) {
    return std::nullopt;
  }
  std::size_t padding = 0;
  while (padding < 2 && !text.empty() && text.back() == '=') {
    text.remove_suffix(1);
    ++padding;
  }
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = value_of(c);
    if (value < 0) {
      return std::nullopt;
    }
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>(static_cast<unsigned char>(bits >> count & 0xFFU)));
    }
  }
  return bytes;
}

}  // namespace stft::tokenizer
