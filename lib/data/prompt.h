// A prompt: text that is put before other texts.
#pragma once

#include <cstdint>
#include <string>

#include "tokenizer/tokenizer.h"

namespace stft::data {

struct Prompt {
  std::string text;
  // Tokens of a prompted text that are the prompt's, as sentence-transformers 6.2 counts them: those of the prompt by
  // itself, cut to `max_length`, leading special tokens included, one trailing special token not. 0 for an empty
  // prompt.
  std::int64_t length = 0;
};

Prompt measure_prompt(std::string text, const tokenizer::Tokenizer& tokenizer, std::int64_t max_length);

}  // namespace stft::data
