// Texts to vectors, for evaluation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "data/prompt.h"
#include "model/sentence_model.h"
#include "tokenizer/tokenizer.h"

namespace stft::eval {

// Borrows the model, whose parameters must be filled, and the tokenizer.
class Embedder {
 public:
  // `observer`: of the blocks of every forward pass; null: the parameters are there all the time.
  Embedder(const model::SentenceModel& model, const tokenizer::Tokenizer& tokenizer, model::Layout layout,
           model::BlockObserver* observer = nullptr)
      : model_(model), tokenizer_(tokenizer), layout_(layout), observer_(observer) {}

  // A prompt as this model's tokenizer sees it; to be measured once for many texts.
  data::Prompt measured(std::string prompt) const;

  // Vectors [texts, embedding_dim] of prompt + text, one forward pass for all, without gradient or dropout. At least
  // one text. A text's vector depends on the other texts of the call by float rounding at most.
  at::Tensor embed(std::span<const std::string_view> texts, const data::Prompt& prompt) const;

  // The same of texts given as token ids: text i is ids[offsets[i] .. offsets[i + 1]), of which the first
  // prompt_lengths[i] are its prompt's; no lengths: no prompts.
  at::Tensor embed_ids(std::span<const int32_t> ids, std::span<const int64_t> offsets,
                       std::span<const int64_t> prompt_lengths = {}) const;

  const model::SentenceModel& model() const { return model_; }

 private:
  const model::SentenceModel& model_;
  const tokenizer::Tokenizer& tokenizer_;
  model::Layout layout_;
  model::BlockObserver* observer_;
};

}  // namespace stft::eval
