#include "train/loaded_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "checkpoint/dequantized_weights.h"
#include "checkpoint/pretrained.h"
#include "model/model_spec.h"
#include "shard/shard_layout.h"
#include "train/adapter.h"

namespace stft::train {

void check_tokenizer_fits(const tokenizer::Tokenizer& tokenizer, const model::SentenceModel& model) {
  if (tokenizer.vocab_size() > model.encoder().vocab_size()) {
    throw UserError(fmt::format("{}: the tokenizer has ids up to {}, the model's table has {} rows",
                                tokenizer.policy().files.front(), tokenizer.vocab_size() - 1,
                                model.encoder().vocab_size()));
  }
}

tokenizer::Tokenizer load_tokenizer(const std::string& directory, const std::string& base) {
  const std::string files = model::tokenizer_directory(directory, base);
  const auto bare = model::static_embedding_directory(files);
  return bare ? tokenizer::Tokenizer::load_bare(*bare) : tokenizer::Tokenizer::load(files);
}

LoadedModel load_model(const std::string& directory, const std::string& base,
                       const quant::QuantizationConfig* quantization) {
  LoadedModel loaded;
  model::ModelSpec spec = model::read_model_spec(directory, base);
  loaded.tokenizer = std::make_unique<tokenizer::Tokenizer>(load_tokenizer(directory, base));
  if (!spec.max_seq_length) {
    spec.max_seq_length = loaded.tokenizer->model_max_length();
  }
  loaded.model = std::make_unique<model::SentenceModel>(std::move(spec));
  check_tokenizer_fits(*loaded.tokenizer, *loaded.model);
  if (loaded.model->max_seq_length() <= loaded.tokenizer->special_tokens_per_text()) {
    throw UserError(fmt::format("{}: max_seq_length {} leaves no room beside {} special tokens", directory,
                                loaded.model->max_seq_length(), loaded.tokenizer->special_tokens_per_text()));
  }
  const auto weights = checkpoint::PretrainedWeights::open(*loaded.model);
  const auto adapter = base.empty() ? nullptr : attach_adapter_of(directory, *loaded.model, weights);
  const shard::RowSource source = initial_rows(*loaded.model, weights.source(), adapter.get(), 0);
  for (model::Parameter& parameter : loaded.model->parameters()) {
    parameter.leaf = at::empty(parameter.shape, at::kFloat);
    source(parameter, shard::shard_layout(parameter.shape, 0, 1), parameter.leaf.view({-1}));
  }
  if (quantization != nullptr) {
    checkpoint::dequantize_leaves(*loaded.model, weights, *quantization);
  }
  return loaded;
}

}  // namespace stft::train
