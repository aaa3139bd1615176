#include "tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

using Text = std::span<const AlignedChar>;

struct Part {
  Span span;
  bool delimiter = false;
};

// Each delimiter character by itself and the stretches between them.
std::vector<Part> parts_by_char(Text text, Span range, CharFlag delimiter) {
  std::vector<Part> parts;
  std::size_t start = range.begin;
  for (std::size_t i = range.begin; i < range.end; ++i) {
    if (has_flag(text[i].value, delimiter)) {
      if (start < i) {
        parts.push_back({{start, i}, false});
      }
      parts.push_back({{i, i + 1}, true});
      start = i + 1;
    }
  }
  if (start < range.end) {
    parts.push_back({{start, range.end}, false});
  }
  return parts;
}

std::vector<Span> merged_with_previous(const std::vector<Part>& parts) {
  std::vector<Span> spans;
  bool after_delimiter = false;
  for (const Part& part : parts) {
    if (part.delimiter && !after_delimiter && !spans.empty()) {
      spans.back().end = part.span.end;
    } else {
      spans.push_back(part.span);
    }
    after_delimiter = part.delimiter;
  }
  return spans;
}

std::vector<Span> merged_with_next(const std::vector<Part>& parts) {
  std::vector<Span> spans;
  bool before_delimiter = false;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part->delimiter && !before_delimiter && !spans.empty()) {
      spans.back().begin = part->span.begin;
    } else {
      spans.push_back(part->span);
    }
    before_delimiter = part->delimiter;
  }
  std::reverse(spans.begin(), spans.end());
  return spans;
}

std::vector<Span> contiguous(const std::vector<Part>& parts) {
  std::vector<Span> spans;
  bool previous = false;
  for (const Part& part : parts) {
    if (part.delimiter == previous && !spans.empty()) {
      spans.back().end = part.span.end;
    } else {
      spans.push_back(part.span);
    }
    previous = part.delimiter;
  }
  return spans;
}

std::vector<Span> with_behavior(const std::vector<Part>& parts, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kMergedWithPrevious:
      return merged_with_previous(parts);
    case SplitBehavior::kMergedWithNext:
      return merged_with_next(parts);
    case SplitBehavior::kContiguous:
      return contiguous(parts);
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      break;
  }
  std::vector<Span> spans;
  for (const Part& part : parts) {
    if (!part.delimiter || behavior == SplitBehavior::kIsolated) {
      spans.push_back(part.span);
    }
  }
  return spans;
}

std::vector<Span> apply(const PunctuationPreTokenizer& step, Text text, Span range) {
  return with_behavior(parts_by_char(text, range, kPunctuation), step.behavior);
}

std::vector<Span> apply(const WhitespaceSplitPreTokenizer&, Text text, Span range) {
  return with_behavior(parts_by_char(text, range, kWhiteSpace), SplitBehavior::kRemoved);
}

std::vector<Span> apply(const BertPreTokenizer&, Text text, Span range) {
  std::vector<Span> spans;
  std::size_t start = range.begin;
  const auto close_word = [&](std::size_t end) {
    if (start < end) {
      spans.push_back({start, end});
    }
    start = end + 1;
  };
  for (std::size_t i = range.begin; i < range.end; ++i) {
    const std::uint16_t flags = char_flags(text[i].value);
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

std::vector<Span> apply(const WhitespacePreTokenizer&, Text text, Span range) {
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

}  // namespace

std::vector<Span> PreTokenizer::split(std::span<const AlignedChar> text, Span range) const {
  std::vector<Span> spans;
  if (range.begin < range.end) {
    spans.push_back(range);
  }
  for (const PreTokenizerStep& step : steps_) {
    std::vector<Span> next;
    for (const Span& span : spans) {
      const std::vector<Span> words = std::visit([&](const auto& s) { return apply(s, text, span); }, step);
      next.insert(next.end(), words.begin(), words.end());
    }
    spans = std::move(next);
  }
  return spans;
}

}  // namespace stft::tokenizer
