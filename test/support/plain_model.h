// A model filled without any engine: what the engine must equal.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/pretrained.h"
#include "model/sentence_model.h"
#include "shard/shard_layout.h"
#include "support/golden.h"
#include "tokenizer/tokenizer.h"

namespace stft::test {

// Of many lengths, one of them empty.
inline const std::vector<std::string>& mixed_texts() {
  static const std::vector<std::string> texts = {
      "one", "a text of some more words", "two of them",
      "",    "another short one",         "the longest of these texts, by a margin, in both words and tokens"};
  return texts;
}

struct PlainModel {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::unique_ptr<model::SentenceModel> model;

  explicit PlainModel(const std::string& directory, const model::ModelConfig& config = {}) {
    const auto bare = model::static_embedding_directory(directory);
    tokenizer = std::make_unique<tokenizer::Tokenizer>(bare ? tokenizer::Tokenizer::load_bare(*bare)
                                                            : tokenizer::Tokenizer::load(directory));
    auto spec = model::read_model_spec(directory);
    if (!spec.max_seq_length) {
      spec.max_seq_length = tokenizer->model_max_length();
    }
    model = std::make_unique<model::SentenceModel>(model::with_overrides(std::move(spec), config, 42));
    const auto weights = checkpoint::PretrainedWeights::open(*model);
    const auto source = weights.source();
    for (model::Parameter& parameter : model->parameters()) {
      parameter.leaf = at::empty(parameter.shape);
      source(parameter, shard::shard_layout(parameter.shape, 0, 1), parameter.leaf.view({-1}));
      parameter.leaf.set_requires_grad(true);
    }
  }

  model::TokenBatch batch(const std::vector<std::string>& texts, model::Layout layout) const {
    std::vector<int32_t> ids;
    std::vector<int64_t> offsets{0};
    std::vector<model::TextKey> keys;
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto of_text = tokenizer->encode_ids(texts[i], model->max_seq_length());
      ids.insert(ids.end(), of_text.begin(), of_text.end());
      offsets.push_back(static_cast<int64_t>(ids.size()));
      keys.push_back({static_cast<uint32_t>(i), static_cast<uint32_t>(i % 3)});
    }
    return model::make_token_batch(ids, offsets, keys, layout);
  }

  at::Tensor embed(const std::vector<std::string>& texts, model::Layout layout,
                   std::optional<model::DropoutPlan> dropout = std::nullopt) const {
    return model->embed(batch(texts, layout), {nullptr, dropout});
  }
};

}  // namespace stft::test
