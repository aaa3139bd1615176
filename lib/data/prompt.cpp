#include "data/prompt.h"

#include <utility>

namespace stft::data {

Prompt measure_prompt(std::string text, const tokenizer::Tokenizer& tokenizer, std::int64_t max_length) {
  Prompt prompt{std::move(text), 0};
  if (!prompt.text.empty()) {
    const auto ids = tokenizer.encode_ids(prompt.text, max_length);
    prompt.length = static_cast<std::int64_t>(ids.size());
    if (!ids.empty() && tokenizer.is_special(ids.back())) {
      prompt.length -= 1;
    }
  }
  return prompt;
}

}  // namespace stft::data
