// A text cut at delimiters, and what may become of the delimiters.
#pragma once

#include <vector>

#include "tokenizer/aligned_text.h"

namespace stft::tokenizer {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct Part {
  Span span;
  bool delimiter = false;
};

// `delimiters` ascend, do not overlap and lie in `range`; the parts cover `range`.
std::vector<Part> parts_between(const std::vector<Span>& delimiters, Span range);

// Delimiters become text and the other way round.
std::vector<Part> inverted(std::vector<Part> parts);

// The words that the parts come to; none is empty.
std::vector<Span> with_behavior(const std::vector<Part>& parts, SplitBehavior behavior);

}  // namespace stft::tokenizer
