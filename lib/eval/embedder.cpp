#include "eval/embedder.h"

#include <ATen/core/grad_mode.h>

#include "data/prompt.h"

namespace stft::eval {

at::Tensor Embedder::embed(std::span<const std::string_view> texts, const std::string& prompt) const {
  const int64_t prompt_length = data::measure_prompt(prompt, tokenizer_, model_.max_seq_length()).length;
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets{0};
  std::string prompted;
  for (const std::string_view text : texts) {
    if (!prompt.empty()) {
      prompted.assign(prompt).append(text);
    }
    const auto of_text = tokenizer_.encode_ids(prompt.empty() ? text : prompted, model_.max_seq_length());
    ids.insert(ids.end(), of_text.begin(), of_text.end());
    offsets.push_back(static_cast<int64_t>(ids.size()));
  }
  return embed_ids(ids, offsets, std::vector<int64_t>(texts.size(), prompt_length));
}

at::Tensor Embedder::embed_ids(std::span<const int32_t> ids, std::span<const int64_t> offsets,
                               std::span<const int64_t> prompt_lengths) const {
  const std::vector<model::TextKey> keys(offsets.size() - 1);
  const at::NoGradGuard no_grad;
  return model_.embed(model::make_token_batch(ids, offsets, keys, layout_, prompt_lengths), {});
}

}  // namespace stft::eval
