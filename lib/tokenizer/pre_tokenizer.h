// Pre-tokenizers of tokenizer.json: where a normalized text is cut into the words that the model sees.
#pragma once

#include <span>
#include <variant>
#include <vector>

#include "tokenizer/aligned_text.h"

namespace stft::tokenizer {

// What becomes of a delimiter.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct BertPreTokenizer {};  // white space removed, then each punctuation character on its own

struct WhitespacePreTokenizer {};  // runs of word characters and runs of other characters; white space removed

struct WhitespaceSplitPreTokenizer {};  // white space removed

struct PunctuationPreTokenizer {
  SplitBehavior behavior = SplitBehavior::kIsolated;
};

using PreTokenizerStep =
    std::variant<BertPreTokenizer, WhitespacePreTokenizer, WhitespaceSplitPreTokenizer, PunctuationPreTokenizer>;

// Steps one after the other, each on the words of the one before; no step leaves the text in one piece.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {}

  // The words inside `range` of `text`: non-empty, in order.
  std::vector<Span> split(std::span<const AlignedChar> text, Span range) const;

  // Whether this is BertPreTokenizer alone.
  bool is_bert() const { return steps_.size() == 1 && std::holds_alternative<BertPreTokenizer>(steps_.front()); }

 private:
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace stft::tokenizer
