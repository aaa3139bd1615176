// Regular expressions of tokenizer.json, in the dialect that HF tokenizers reads: Oniguruma's own syntax over UTF-8.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/aligned_text.h"

namespace stft::tokenizer {

// Immutable; safe on any number of threads.
class Regex {
 public:
  // UserError with Oniguruma's reason when the pattern does not compile.
  explicit Regex(const std::string& pattern);

  // The matches (bytes) in well-formed UTF-8, from the left, not overlapping. They may be empty, but not directly
  // behind another match. UserError when the search exceeds Oniguruma's limit of retries.
  std::vector<Span> find_all(std::string_view text) const;

  // The same in code points.
  std::vector<Span> find_all(std::span<const AlignedChar> text) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
  std::string pattern_;
};

}  // namespace stft::tokenizer
