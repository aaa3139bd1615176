#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <span>
#include <vector>

#include "io/utf8.h"
#include "tokenizer/two_stage_table.h"
#include "tokenizer/unicode_tables.h"

namespace stft::tokenizer {
namespace {

void mark(std::vector<std::uint16_t>& flat, std::span<const CodePointRange> ranges, int flags) {
  for (const CodePointRange& range : ranges) {
    for (char32_t c = range.first; c <= range.last; ++c) {
      flat[c] = static_cast<std::uint16_t>(flat[c] ^ flags);  // ranges of one set do not overlap
    }
  }
}

TwoStageTable make_flag_table() {
  std::vector<std::uint16_t> flat(TwoStageTable::kCodePoints, 0);
  mark(flat, removed_by_cleaning(), kRemovedByCleaning);
  mark(flat, punctuation(), kPunctuation);
  mark(flat, nonspacing_marks(), kNonspacingMark);
  mark(flat, combining_marks(), kCombiningMark);
  mark(flat, word_characters(), kWordCharacter | kRegexWord);
  mark(flat, word_difference(), kRegexWord);
  mark(flat, white_space(), kWhiteSpace);
  mark(flat, chinese_characters(), kChineseCharacter);
  mark(flat, letters(), kLetter);
  mark(flat, numbers(), kNumber | kNumeric);
  mark(flat, numeric_difference(), kNumeric);
  return TwoStageTable(flat);
}

bool contains(std::span<const CodePointRange> ranges, char32_t c) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), c,
                                      [](char32_t v, const CodePointRange& r) { return v < r.first; });
  return after != ranges.begin() && c <= std::prev(after)->last;
}

// Length of the longest prefix of `text` that may begin a well-formed sequence, at least 1: what one U+FFFD stands for.
std::size_t ill_formed_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned lead = byte(0);
  std::size_t expected = 0;
  unsigned low = 0x80;
  unsigned high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    expected = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    expected = 3;
    low = lead == 0xE0 ? 0xA0 : 0x80;
    high = lead == 0xED ? 0x9F : 0xBF;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    expected = 4;
    low = lead == 0xF0 ? 0x90 : 0x80;
    high = lead == 0xF4 ? 0x8F : 0xBF;
  } else {
    return 1;
  }
  std::size_t length = 1;
  while (length < expected && byte(length) >= low && byte(length) <= high) {
    ++length;
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

}  // namespace

std::uint16_t char_flags(char32_t c) {
  static const TwoStageTable table = make_flag_table();
  return table[c];
}

DecodedChar decode_char(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[position + i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) {
    return {lead, 1};
  }
  if (lead < 0xE0) {
    return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  }
  if (lead < 0xF0) {
    return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  }
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

char32_t decode_char_before(std::string_view text, std::size_t position) {
  std::size_t start = position - 1;
  while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) {
    --start;
  }
  return decode_char(text, start).value;
}

void append_utf8(char32_t c, std::string& text) {
  const auto push = [&](char32_t value) { text.push_back(static_cast<char>(static_cast<unsigned char>(value))); };
  if (c < 0x80) {
    push(c);
  } else if (c < 0x800) {
    push(0xC0 | c >> 6);
    push(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    push(0xE0 | c >> 12);
    push(0x80 | (c >> 6 & 0x3F));
    push(0x80 | (c & 0x3F));
  } else {
    push(0xF0 | c >> 18);
    push(0x80 | (c >> 12 & 0x3F));
    push(0x80 | (c >> 6 & 0x3F));
    push(0x80 | (c & 0x3F));
  }
}

std::string shortened(std::string_view utf8) {
  constexpr std::size_t kLongest = 80;
  if (utf8.size() <= kLongest) {
    return std::string(utf8);
  }
  std::size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(utf8[end]) & 0xC0) == 0x80) {
    --end;
  }
  return std::string(utf8.substr(0, end)) + "...";
}

std::size_t count_chars(std::string_view utf8) {
  return static_cast<std::size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::optional<std::string> replace_invalid_utf8(std::string_view text) {
  std::optional<std::size_t> bad = io::first_invalid_utf8(text);
  if (!bad) {
    return std::nullopt;
  }
  std::string repaired;
  repaired.reserve(text.size() + 16);
  while (bad) {
    repaired.append(text.substr(0, *bad));
    text.remove_prefix(*bad);
    append_utf8(kReplacementCharacter, repaired);
    text.remove_prefix(std::min(ill_formed_length(text), text.size()));
    bad = io::first_invalid_utf8(text);
  }
  repaired.append(text);
  return repaired;
}

MappedChars lowercase(char32_t c) {
  MappedChars mapped;
  const auto exceptions = lowercase_exceptions();
  const auto found = std::lower_bound(exceptions.begin(), exceptions.end(), c,
                                      [](const LowercaseException& e, char32_t v) { return e.upper < v; });
  if (found != exceptions.end() && found->upper == c) {
    mapped.values[0] = found->first;
    mapped.values[1] = found->second;
    mapped.count = found->second == 0 ? 1 : 2;
    return mapped;
  }
  mapped.values[0] = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  mapped.count = 1;
  return mapped;
}

MappedChars decompose(char32_t c, Decomposition kind) {
  MappedChars mapped;
  mapped.values[0] = c;
  mapped.count = 1;
  if (c < 0xA0 || contains(not_decomposed(), c)) {
    return mapped;
  }
  std::array<utf8proc_int32_t, 20> parts{};
  const int options = UTF8PROC_DECOMPOSE | (kind == Decomposition::kCompatible ? UTF8PROC_COMPAT : 0);
  const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(),
                                                         static_cast<utf8proc_ssize_t>(parts.size()),
                                                         static_cast<utf8proc_option_t>(options), nullptr);
  if (count <= 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
    return mapped;
  }
  mapped.count = static_cast<int>(count);
  std::transform(parts.begin(), parts.begin() + count, mapped.values.begin(),
                 [](utf8proc_int32_t part) { return static_cast<char32_t>(part); });
  return mapped;
}

int combining_class(char32_t c) {
  if (c < 0x300) {
    return 0;
  }
  const int value = utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
  return value != 0 && contains(combining_class_zero(), c) ? 0 : value;
}

std::optional<char32_t> compose(char32_t first, char32_t second) {
  if (second < 0x300) {
    return std::nullopt;
  }
  std::array<utf8proc_int32_t, 2> pair = {static_cast<utf8proc_int32_t>(first), static_cast<utf8proc_int32_t>(second)};
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(pair.data(), 2, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  if (count != 1 || contains(not_decomposed(), static_cast<char32_t>(pair[0]))) {
    return std::nullopt;
  }
  return static_cast<char32_t>(pair[0]);
}

}  // namespace stft::tokenizer
