// The regular expressions that cut texts for the byte-level vocabularies in use, as scanners: what Oniguruma finds with
// the pattern, several times faster and in linear time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/aligned_text.h"

namespace stft::tokenizer {

enum class WordPattern {
  kGpt2,    // GPT-2, RoBERTa, GPT-NeoX, ModernBERT; ByteLevel's own
  kLlama3,  // cl100k, Llama 3: digits in groups of at most three
  kQwen2,   // the same, digits one by one
};

// The regular expression of a pattern.
std::string text_of(WordPattern pattern);

// The pattern with exactly this text.
std::optional<WordPattern> known_word_pattern(const std::string& pattern);

// The matches, from the left, not overlapping, not empty. All three patterns match everywhere: the words cover `range`.
std::vector<Span> find_words(WordPattern pattern, std::span<const AlignedChar> text, Span range);

}  // namespace stft::tokenizer
