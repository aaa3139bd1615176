#include "tokenizer/normalizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "tokenizer/byte_level.h"

namespace stft::tokenizer {
namespace {

constexpr std::size_t kMaxGrowth = 64;

template <typename Predicate>
AlignedText without(AlignedText text, Predicate drop) {
  std::erase_if(text, drop);
  return text;
}

AlignedText lowercased(const AlignedText& text) {
  AlignedText result;
  result.reserve(text.size());
  for (const AlignedChar& c : text) {
    const MappedChars lower = lowercase(c.value);
    for (int i = 0; i < lower.count; ++i) {
      result.push_back({lower.values[static_cast<std::size_t>(i)], c.begin, c.end});
    }
  }
  return result;
}

AlignedText cleaned(AlignedText text) {
  std::erase_if(text, [](const AlignedChar& c) { return has_flag(c.value, kRemovedByCleaning); });
  for (AlignedChar& c : text) {
    if (has_flag(c.value, kWhiteSpace)) {
      c.value = U' ';
    }
  }
  return text;
}

AlignedText with_chinese_spaced(const AlignedText& text) {
  AlignedText result;
  result.reserve(text.size());
  for (const AlignedChar& c : text) {
    if (has_flag(c.value, kChineseCharacter)) {
      result.push_back({U' ', c.begin, c.end});
      result.push_back(c);
      result.push_back({U' ', c.begin, c.end});
    } else {
      result.push_back(c);
    }
  }
  return result;
}

struct DecomposedChar : RewrittenChar {
  int combining = 0;
};

// Decomposes, and puts the marks behind each starter in the order of their classes.
std::vector<DecomposedChar> decomposed(const AlignedText& text, Decomposition kind) {
  std::vector<DecomposedChar> result;
  result.reserve(text.size());
  std::size_t run = 0;  // where the current run of marks begins
  bool unsorted = false;
  const auto sort_run = [&] {
    if (unsorted) {
      std::stable_sort(result.begin() + static_cast<std::ptrdiff_t>(run), result.end(),
                       [](const DecomposedChar& a, const DecomposedChar& b) { return a.combining < b.combining; });
      unsorted = false;
    }
  };
  for (const AlignedChar& c : text) {
    const MappedChars parts = decompose(c.value, kind);
    for (int i = 0; i < parts.count; ++i) {
      const char32_t part = parts.values[static_cast<std::size_t>(i)];
      const int combining = combining_class(part);
      if (combining == 0) {
        sort_run();
        run = result.size() + 1;
      } else if (result.size() > run && result.back().combining > combining) {
        unsorted = true;
      }
      result.push_back({{part, i == 0 ? 0 : 1}, combining});
    }
  }
  sort_run();
  return result;
}

// Canonical composition of a decomposed text.
std::vector<DecomposedChar> composed(const std::vector<DecomposedChar>& text) {
  std::vector<DecomposedChar> result;
  result.reserve(text.size());
  std::optional<std::size_t> starter;
  for (const DecomposedChar& c : text) {
    const bool adjacent = starter && *starter + 1 == result.size();
    const bool blocked = starter && !adjacent && result.back().combining >= c.combining;
    if (starter && !blocked) {
      if (const auto composite = compose(result[*starter].value, c.value)) {
        result[*starter].value = *composite;
        result[*starter].change += c.change - 1;
        continue;
      }
    }
    if (c.combining == 0) {
      starter = result.size();
    }
    result.push_back(c);
  }
  return result;
}

AlignedText normalized(const BertNormalizer& step, AlignedText text) {
  if (step.clean_text) {
    text = cleaned(std::move(text));
  }
  if (step.handle_chinese_chars) {
    text = with_chinese_spaced(text);
  }
  if (step.strip_accents && !text.empty()) {
    text = without(realigned(text, decomposed(text, Decomposition::kCanonical)),
                   [](const AlignedChar& c) { return has_flag(c.value, kNonspacingMark); });
  }
  return step.lowercase ? lowercased(text) : text;
}

AlignedText normalized(const UnicodeNormalizer& step, AlignedText text) {
  // Below these nothing decomposes or composes with its neighbours.
  const bool is_composed = step.compose && step.decomposition == Decomposition::kCanonical;
  const char32_t first_changed = is_composed ? 0x300 : 0xA0;
  if (std::all_of(text.begin(), text.end(), [&](const AlignedChar& c) { return c.value < first_changed; })) {
    return text;
  }
  const std::vector<DecomposedChar> parts = decomposed(text, step.decomposition);
  return realigned(text, step.compose ? composed(parts) : parts);
}

AlignedText normalized(const LowercaseNormalizer&, const AlignedText& text) {
  return lowercased(text);
}

AlignedText normalized(const StripAccentsNormalizer&, AlignedText text) {
  return without(std::move(text), [](const AlignedChar& c) { return has_flag(c.value, kCombiningMark); });
}

AlignedText normalized(const StripNormalizer& step, AlignedText text) {
  const auto is_text = [](const AlignedChar& c) { return !has_flag(c.value, kWhiteSpace); };
  if (step.right) {
    text.erase(std::find_if(text.rbegin(), text.rend(), is_text).base(), text.end());
  }
  if (step.left) {
    text.erase(text.begin(), std::find_if(text.begin(), text.end(), is_text));
  }
  return text;
}

AlignedText normalized(const ReplaceNormalizer& step, AlignedText text) {
  if (text.empty()) {
    return text;
  }
  const auto* literal = std::get_if<std::u32string>(&step.pattern);
  if (literal != nullptr && literal->size() == 1 && step.content.size() == 1) {
    for (AlignedChar& c : text) {
      c.value = c.value == literal->front() ? step.content.front() : c.value;
    }
    return text;
  }
  const std::vector<Span> found =
      literal != nullptr ? occurrences(text, *literal) : std::get<Regex>(step.pattern).find_all(text);
  if (found.empty()) {
    return text;
  }
  AlignedText result;
  result.reserve(text.size());
  std::size_t copied = 0;
  const auto copy_until = [&](std::size_t end) {
    result.insert(result.end(), text.begin() + static_cast<std::ptrdiff_t>(copied),
                  text.begin() + static_cast<std::ptrdiff_t>(end));
  };
  for (const Span& match : found) {
    copy_until(match.begin);
    // The new code points belong to the last one that they replace, or to the one before when there is none.
    const std::uint32_t start = text.front().begin;
    const AlignedChar source = match.end > 0 ? text[match.end - 1] : AlignedChar{0, start, start};
    for (const char32_t value : step.content) {
      result.push_back({value, source.begin, source.end});
    }
    copied = match.end;
  }
  copy_until(text.size());
  return result;
}

AlignedText normalized(const PrependNormalizer& step, AlignedText text) {
  return text.empty() ? text : prepended(step.prefix, text);
}

AlignedText normalized(const CharsmapNormalizer& step, AlignedText text) {
  return step.charsmap.normalize(std::move(text));
}

AlignedText normalized(const ByteLevelNormalizer&, const AlignedText& text) {
  AlignedText result;
  result.reserve(text.size());
  append_byte_level(text, result);
  return result;
}

bool is_removed_by_nmt(char32_t c) {
  return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
}

bool is_blank_for_nmt(char32_t c) {
  return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
         c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == kReplacementCharacter;
}

AlignedText normalized(const NmtNormalizer&, AlignedText text) {
  std::erase_if(text, [](const AlignedChar& c) { return is_removed_by_nmt(c.value); });
  for (AlignedChar& c : text) {
    c.value = is_blank_for_nmt(c.value) ? U' ' : c.value;
  }
  return text;
}

}  // namespace

AlignedText Normalizer::normalize(AlignedText text) const {
  // Replacements in a row could make gigabytes of a word. One step makes at most kMaxReplacedChars of a character.
  const std::size_t limit = kMaxGrowth * text.size() + kMaxReplacedChars;
  for (const NormalizerStep& step : steps_) {
    text = std::visit([&](const auto& s) { return normalized(s, std::move(text)); }, step);
    if (text.size() > limit) {
      throw UserError(fmt::format("the normalizer makes a text over {} times as long; step {} of {} exceeds that",
                                  kMaxGrowth, &step - steps_.data() + 1, steps_.size()));
    }
  }
  return text;
}

std::string Normalizer::normalize(std::string_view utf8) const {
  std::string result;
  append_utf8(normalize(aligned_text(utf8, 0)), result);
  return result;
}

bool Normalizer::is_local_on_ascii() const {
  return std::all_of(steps_.begin(), steps_.end(), [](const NormalizerStep& step) {
    if (const auto* unicode = std::get_if<UnicodeNormalizer>(&step)) {
      return !unicode->compose;
    }
    return std::holds_alternative<BertNormalizer>(step) || std::holds_alternative<LowercaseNormalizer>(step) ||
           std::holds_alternative<StripAccentsNormalizer>(step);
  });
}

}  // namespace stft::tokenizer
