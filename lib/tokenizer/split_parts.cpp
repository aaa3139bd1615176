#include "tokenizer/split_parts.h"

#include <algorithm>

namespace stft::tokenizer {
namespace {

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

std::vector<Span> unmerged(const std::vector<Part>& parts, bool keeps_delimiters) {
  std::vector<Span> spans;
  for (const Part& part : parts) {
    if (!part.delimiter || keeps_delimiters) {
      spans.push_back(part.span);
    }
  }
  return spans;
}

std::vector<Span> possibly_empty(const std::vector<Part>& parts, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kMergedWithPrevious:
      return merged_with_previous(parts);
    case SplitBehavior::kMergedWithNext:
      return merged_with_next(parts);
    case SplitBehavior::kContiguous:
      return contiguous(parts);
    case SplitBehavior::kRemoved:
      return unmerged(parts, false);
    case SplitBehavior::kIsolated:
      return unmerged(parts, true);
  }
  return {};
}

}  // namespace

std::vector<Part> parts_between(const std::vector<Span>& delimiters, Span range) {
  std::vector<Part> parts;
  parts.reserve(2 * delimiters.size() + 1);
  std::size_t start = range.begin;
  for (const Span& delimiter : delimiters) {
    if (start < delimiter.begin) {
      parts.push_back({{start, delimiter.begin}, false});
    }
    parts.push_back({delimiter, true});
    start = delimiter.end;
  }
  if (start < range.end) {
    parts.push_back({{start, range.end}, false});
  }
  return parts;
}

std::vector<Part> inverted(std::vector<Part> parts) {
  for (Part& part : parts) {
    part.delimiter = !part.delimiter;
  }
  return parts;
}

std::vector<Span> with_behavior(const std::vector<Part>& parts, SplitBehavior behavior) {
  std::vector<Span> spans = possibly_empty(parts, behavior);
  std::erase_if(spans, [](const Span& span) { return span.begin == span.end; });
  return spans;
}

}  // namespace stft::tokenizer
