#include "tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

using Text = std::span<const AlignedChar>;

template <typename Predicate>
std::vector<Part> parts_by_char(Text text, Span range, Predicate is_delimiter) {
  std::vector<Span> delimiters;
  for (std::size_t i = range.begin; i < range.end; ++i) {
    if (is_delimiter(text[i].value)) {
      delimiters.push_back({i, i + 1});
    }
  }
  return parts_between(delimiters, range);
}

std::vector<Part> parts_by_flag(Text text, Span range, CharFlag flag) {
  return parts_by_char(text, range, [flag](char32_t c) { return has_flag(c, flag); });
}

// In `range`.
std::vector<Span> matches(Text text, Span range, const std::variant<std::u32string, Regex>& pattern) {
  const Text inside = text.subspan(range.begin, range.end - range.begin);
  const auto* literal = std::get_if<std::u32string>(&pattern);
  std::vector<Span> found =
      literal != nullptr ? occurrences(inside, *literal) : std::get<Regex>(pattern).find_all(inside);
  for (Span& match : found) {
    match = {match.begin + range.begin, match.end + range.begin};
  }
  return found;
}

// --- Steps that only cut: the words inside one word --------------------------------------------------------------

std::vector<Span> cut(const PunctuationPreTokenizer& step, Text text, Span range) {
  return with_behavior(parts_by_flag(text, range, kPunctuation), step.behavior);
}

std::vector<Span> cut(const WhitespaceSplitPreTokenizer&, Text text, Span range) {
  return with_behavior(parts_by_flag(text, range, kWhiteSpace), SplitBehavior::kRemoved);
}

std::vector<Span> cut(const DigitsPreTokenizer& step, Text text, Span range) {
  return with_behavior(parts_by_flag(text, range, kNumeric),
                       step.individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
}

std::vector<Span> cut(const CharDelimiterPreTokenizer& step, Text text, Span range) {
  return with_behavior(parts_by_char(text, range, [&](char32_t c) { return c == step.delimiter; }),
                       SplitBehavior::kRemoved);
}

std::vector<Span> cut(const WordPatternPreTokenizer& step, Text text, Span range) {
  return find_words(step.pattern, text, range);
}

std::vector<Span> cut(const SplitPreTokenizer& step, Text text, Span range) {
  std::vector<Part> parts = parts_between(matches(text, range, step.pattern), range);
  return with_behavior(step.invert ? inverted(std::move(parts)) : parts, step.behavior);
}

std::vector<Span> cut(const BertPreTokenizer&, Text text, Span range) {
  std::vector<Span> spans;
  std::size_t start = range.begin;
  const auto close_word = [&](std::size_t end) {
    if (start < end) {
      spans.push_back({start, end});
    }
    start = end + 1;
  };
  for (std::size_t i = range.begin; i < range.end; ++i) {
    const auto flags = char_flags(text[i].value);
    if ((flags & (kWhiteSpace | kPunctuation)) != 0) {
      close_word(i);
      if ((flags & kWhiteSpace) == 0) {
        spans.push_back({i, i + 1});
      }
    }
  }
  close_word(range.end);
  return spans;
}

std::vector<Span> cut(const WhitespacePreTokenizer&, Text text, Span range) {
  constexpr unsigned kKinds = kWordCharacter | kWhiteSpace;
  std::vector<Span> spans;
  for (std::size_t i = range.begin; i < range.end;) {
    const unsigned kind = char_flags(text[i].value) & kKinds;
    const std::size_t start = i;
    while (i < range.end && (char_flags(text[i].value) & kKinds) == kind) {
      ++i;
    }
    if (kind != kWhiteSpace) {
      spans.push_back({start, i});
    }
  }
  return spans;
}

template <typename Step>
WordText applied(const Step& step, WordText input) {
  std::vector<Span> words;
  words.reserve(input.words.size());
  for (const Span& word : input.words) {
    const std::vector<Span> parts = cut(step, input.text, word);
    words.insert(words.end(), parts.begin(), parts.end());
  }
  input.words = std::move(words);
  return input;
}

// --- Steps that write words anew ---------------------------------------------------------------------------------

void append_metaspace(const MetaspacePreTokenizer& step, Text word, WordText& result) {
  const std::size_t begin = result.text.size();
  const auto replaced = [&](char32_t c) { return c == U' ' ? step.replacement : c; };
  const bool prepends =
      step.scheme == PrependScheme::kAlways || (step.scheme == PrependScheme::kFirst && word.front().begin == 0);
  if (prepends && replaced(word.front().value) != step.replacement) {
    result.text.push_back({step.replacement, word.front().begin, word.front().end});
  }
  std::size_t start = begin;
  for (const AlignedChar& c : word) {
    const char32_t value = replaced(c.value);
    if (step.splits && value == step.replacement && result.text.size() > start) {
      result.words.push_back({start, result.text.size()});
      start = result.text.size();
    }
    result.text.push_back({value, c.begin, c.end});
  }
  result.words.push_back({start, result.text.size()});
}

void append_byte_level_words(const ByteLevelPreTokenizer& step, Text word, WordText& result) {
  const bool prepends = step.add_prefix_space && word.front().value != U' ';
  const AlignedText owned = prepends ? prepended(U" ", word) : AlignedText();
  const Text text = prepends ? Text(owned) : word;
  const Span whole{0, text.size()};
  for (const Span& part : step.splits ? find_words(WordPattern::kGpt2, text, whole) : std::vector<Span>{whole}) {
    const std::size_t begin = result.text.size();
    append_byte_level(text.subspan(part.begin, part.end - part.begin), result.text);
    result.words.push_back({begin, result.text.size()});
  }
}

template <typename Append>
WordText rewritten(const WordText& input, Append append) {
  WordText result;
  result.text.reserve(input.text.size() + input.words.size());
  result.words.reserve(input.words.size());
  for (const Span& word : input.words) {
    append(Text(input.text).subspan(word.begin, word.end - word.begin), result);
  }
  return result;
}

WordText applied(const MetaspacePreTokenizer& step, const WordText& input) {
  return rewritten(input, [&](Text word, WordText& result) { append_metaspace(step, word, result); });
}

WordText applied(const ByteLevelPreTokenizer& step, const WordText& input) {
  return rewritten(input, [&](Text word, WordText& result) { append_byte_level_words(step, word, result); });
}

}  // namespace

WordText PreTokenizer::split(AlignedText text) const {
  WordText result{std::move(text), {}};
  if (result.text.empty()) {
    return result;
  }
  result.words.push_back({0, result.text.size()});
  for (const PreTokenizerStep& step : steps_) {
    result = std::visit([&](const auto& s) { return applied(s, std::move(result)); }, step);
  }
  return result;
}

}  // namespace stft::tokenizer
