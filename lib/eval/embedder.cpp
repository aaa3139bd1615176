#include "eval/embedder.h"

#include <ATen/core/grad_mode.h>

#include <utility>

namespace stft::eval {

data::Prompt Embedder::measured(std::string prompt) const {
  return data::measure_prompt(std::move(prompt), tokenizer_, model_.max_seq_length());
}

at::Tensor Embedder::embed(std::span<const std::string_view> texts, const data::Prompt& prompt) const {
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets{0};
  std::string prompted;
  for (const std::string_view text : texts) {
    if (!prompt.text.empty()) {
      prompted.assign(prompt.text).append(text);
    }
    const auto of_text = tokenizer_.encode_ids(prompt.text.empty() ? text : prompted, model_.max_seq_length());
    ids.insert(ids.end(), of_text.begin(), of_text.end());
    offsets.push_back(static_cast<int64_t>(ids.size()));
  }
  return embed_ids(ids, offsets, std::vector<int64_t>(texts.size(), prompt.length));
}

at::Tensor Embedder::embed_ids(std::span<const int32_t> ids, std::span<const int64_t> offsets,
                               std::span<const int64_t> prompt_lengths) const {
  const std::vector<model::TextKey> keys(offsets.size() - 1);
  const at::NoGradGuard no_grad;
  return model_.embed(model::make_token_batch(ids, offsets, keys, layout_, prompt_lengths), {observer_, std::nullopt});
}

}  // namespace stft::eval
