#include "tokenizer/grapheme.h"

#include <cstdint>
#include <vector>

#include "tokenizer/grapheme_tables.h"
#include "tokenizer/two_stage_table.h"
#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

constexpr char32_t kZeroWidthJoiner = 0x200D;

TwoStageTable make_property_table() {
  std::vector<std::uint16_t> flat(TwoStageTable::kCodePoints, 0);
  for (const GraphemeRange& range : grapheme_ranges()) {
    for (char32_t c = range.first; c <= range.last; ++c) {
      flat[c] = range.properties;
    }
  }
  return TwoStageTable(flat);
}

std::uint16_t properties_of(char32_t c) {
  static const TwoStageTable table = make_property_table();
  return table[c];
}

bool joins_hangul(std::uint16_t before, std::uint16_t after) {
  if ((before & kHangulL) != 0) {
    return (after & (kHangulL | kHangulV | kHangulLV | kHangulLVT)) != 0;
  }
  if ((before & (kHangulV | kHangulLV)) != 0) {
    return (after & (kHangulV | kHangulT)) != 0;
  }
  return (before & (kHangulT | kHangulLVT)) != 0 && (after & kHangulT) != 0;
}

// How far the characters so far have come towards the rules that look back over several of them.
class LookBehind {
 public:
  void add(char32_t c, std::uint16_t properties) {
    const bool may_go_on = emoji_ == Emoji::kPictograph;  // HF's clusters end between two joiners
    if ((properties & kPictographic) != 0 || (may_go_on && (properties & kTransparent) != 0)) {
      emoji_ = Emoji::kPictograph;
    } else {
      emoji_ = may_go_on && c == kZeroWidthJoiner ? Emoji::kJoiner : Emoji::kNone;
    }
    if ((properties & kIndicConsonant) != 0) {
      conjunct_ = Conjunct::kConsonant;
    } else if (conjunct_ != Conjunct::kNone && (properties & kIndicLinker) != 0) {
      conjunct_ = Conjunct::kLinked;
    } else if ((properties & kIndicExtend) == 0) {
      conjunct_ = Conjunct::kNone;
    }
  }

  bool joins(std::uint16_t after) const {
    return (emoji_ == Emoji::kJoiner && (after & kPictographic) != 0) ||
           (conjunct_ == Conjunct::kLinked && (after & kIndicConsonant) != 0);
  }

 private:
  enum class Emoji { kNone, kPictograph, kJoiner };
  enum class Conjunct { kNone, kConsonant, kLinked };

  Emoji emoji_ = Emoji::kNone;
  Conjunct conjunct_ = Conjunct::kNone;
};

}  // namespace

std::size_t grapheme_end(std::string_view text, std::size_t start) {
  const DecodedChar first = decode_char(text, start);
  std::size_t end = start + first.length;
  if (first.value == U'\r' && end < text.size() && text[end] == '\n') {
    return end + 1;
  }
  if (end == text.size() || (first.value < 0x80 && static_cast<unsigned char>(text[end]) < 0x80)) {
    return end;
  }
  std::uint16_t before = properties_of(first.value);
  LookBehind behind;
  behind.add(first.value, before);
  while (end < text.size() && (before & kControl) == 0) {
    const DecodedChar next = decode_char(text, end);
    const std::uint16_t after = properties_of(next.value);
    const bool joins = (after & kJoins) != 0 || ((before & kPrepend) != 0 && (after & kControl) == 0) ||
                       joins_hangul(before, after) || behind.joins(after);
    if (!joins) {
      break;
    }
    behind.add(next.value, after);
    before = after;
    end += next.length;
  }
  return end;
}

}  // namespace stft::tokenizer
