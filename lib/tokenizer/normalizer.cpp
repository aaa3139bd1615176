#include "tokenizer/normalizer.h"

#include <algorithm>
#include <functional>

namespace stft::tokenizer {
namespace {

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

// A code point of a rewritten text. `change` is how HF tokenizers counts it: 1 inserted, 0 replaces the next old code
// point, -n replaces it and swallows n more. Alignments follow from that count alone, also where marks were reordered.
struct RewrittenChar {
  char32_t value = 0;
  int change = 0;
  int combining = 0;
};

AlignedText realigned(const AlignedText& old, const std::vector<RewrittenChar>& rewritten) {
  AlignedText result;
  result.reserve(rewritten.size());
  std::size_t position = 0;
  for (const RewrittenChar& c : rewritten) {
    const bool inserted = c.change > 0;
    const std::size_t source = std::min(inserted && position > 0 ? position - 1 : position, old.size() - 1);
    result.push_back({c.value, old[source].begin, old[source].end});
    if (!inserted) {
      position += 1 + static_cast<std::size_t>(-c.change);
    }
  }
  return result;
}

// Decomposes, and puts the marks behind each starter in the order of their classes.
std::vector<RewrittenChar> decomposed(const AlignedText& text, Decomposition kind) {
  std::vector<RewrittenChar> result;
  result.reserve(text.size());
  std::size_t run = 0;  // where the current run of marks begins
  bool unsorted = false;
  const auto sort_run = [&] {
    if (unsorted) {
      std::stable_sort(result.begin() + static_cast<std::ptrdiff_t>(run), result.end(),
                       [](const RewrittenChar& a, const RewrittenChar& b) { return a.combining < b.combining; });
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
      result.push_back({part, i == 0 ? 0 : 1, combining});
    }
  }
  sort_run();
  return result;
}

// Canonical composition of a decomposed text.
std::vector<RewrittenChar> composed(const std::vector<RewrittenChar>& text) {
  std::vector<RewrittenChar> result;
  result.reserve(text.size());
  std::optional<std::size_t> starter;
  for (const RewrittenChar& c : text) {
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
  if (text.empty()) {
    return text;
  }
  const std::vector<RewrittenChar> parts = decomposed(text, step.decomposition);
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
  std::u32string values(text.size(), U'\0');
  std::transform(text.begin(), text.end(), values.begin(), [](const AlignedChar& c) { return c.value; });
  const std::boyer_moore_horspool_searcher searcher(step.pattern.begin(), step.pattern.end());
  AlignedText result;
  result.reserve(text.size());
  auto position = values.cbegin();
  while (position != values.cend()) {
    const auto [match, match_end] = searcher(position, values.cend());
    result.insert(result.end(), text.begin() + (position - values.cbegin()), text.begin() + (match - values.cbegin()));
    if (match == values.cend()) {
      break;
    }
    const AlignedChar& last = text[static_cast<std::size_t>(match_end - values.cbegin()) - 1];
    for (const char32_t value : step.content) {
      result.push_back({value, last.begin, last.end});
    }
    position = match_end;
  }
  return result;
}

}  // namespace

AlignedText aligned_text(std::string_view utf8, std::uint32_t first_index) {
  AlignedText text;
  text.reserve(utf8.size());
  std::uint32_t index = first_index;
  for (std::size_t position = 0; position < utf8.size(); ++index) {
    const DecodedChar c = decode_char(utf8, position);
    text.push_back({c.value, index, index + 1});
    position += c.length;
  }
  return text;
}

AlignedText Normalizer::normalize(AlignedText text) const {
  for (const NormalizerStep& step : steps_) {
    text = std::visit([&](const auto& s) { return normalized(s, std::move(text)); }, step);
  }
  return text;
}

std::string Normalizer::normalize(std::string_view utf8) const {
  std::string result;
  for (const AlignedChar& c : normalize(aligned_text(utf8, 0))) {
    append_utf8(c.value, result);
  }
  return result;
}

bool Normalizer::is_local_on_ascii() const {
  return std::all_of(steps_.begin(), steps_.end(), [](const NormalizerStep& step) {
    if (const auto* unicode = std::get_if<UnicodeNormalizer>(&step)) {
      return !unicode->compose;
    }
    return !std::holds_alternative<StripNormalizer>(step) && !std::holds_alternative<ReplaceNormalizer>(step);
  });
}

}  // namespace stft::tokenizer
