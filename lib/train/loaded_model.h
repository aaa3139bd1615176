// A model for inference, without a recipe.
#pragma once

#include <memory>
#include <string>

#include "model/sentence_model.h"
#include "quant/quant_config.h"
#include "tokenizer/tokenizer.h"

namespace stft::train {

// UserError naming the directory when the tokenizer's ids do not fit the model's vocabulary.
void check_tokenizer_fits(const tokenizer::Tokenizer& tokenizer, const model::SentenceModel& model);

// The tokenizer of a model directory as its first module uses it; `base` as for read_model_spec. Errors of
// Tokenizer::load.
tokenizer::Tokenizer load_tokenizer(const std::string& directory, const std::string& base = "");

// Every parameter is whole on this rank, in fp32.
struct LoadedModel {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::unique_ptr<model::SentenceModel> model;
};

// `base`: the base model of an adapter's directory. `quantization`: how its weights are quantized before they are used;
// null: they are not. UserError for what the directory lacks; the errors of
// read_model_spec, Tokenizer::load, PretrainedWeights::open and check_tokenizer_fits.
LoadedModel load_model(const std::string& directory, const std::string& base = "",
                       const quant::QuantizationConfig* quantization = nullptr);

}  // namespace stft::train
