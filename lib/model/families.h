// The encoders by family, one factory for each model_type of transformers.
#pragma once

#include <memory>

#include "model/encoder.h"
#include "model/model_spec.h"

namespace stft::model {

using EncoderFactory = std::unique_ptr<Encoder> (*)(const EncoderInput& input);

// Post-norm encoders (post_norm_encoder.h).
std::unique_ptr<Encoder> build_albert(const EncoderInput& input);
std::unique_ptr<Encoder> build_bert(const EncoderInput& input);
std::unique_ptr<Encoder> build_distilbert(const EncoderInput& input);
std::unique_ptr<Encoder> build_electra(const EncoderInput& input);
std::unique_ptr<Encoder> build_gte(const EncoderInput& input);
std::unique_ptr<Encoder> build_mpnet(const EncoderInput& input);
std::unique_ptr<Encoder> build_nomic_bert(const EncoderInput& input);
std::unique_ptr<Encoder> build_roberta(const EncoderInput& input);

// Of a configuration that the family's authors published.
io::Json exported_nomic_bert_config(const io::Json& config, const std::string& origin);
io::Json exported_gte_config(const io::Json& config, const std::string& origin);

// Pre-norm decoders (decoder.h).
std::unique_ptr<Encoder> build_gemma2(const EncoderInput& input);
std::unique_ptr<Encoder> build_gemma3(const EncoderInput& input);
std::unique_ptr<Encoder> build_llama(const EncoderInput& input);
std::unique_ptr<Encoder> build_mistral(const EncoderInput& input);
std::unique_ptr<Encoder> build_qwen2(const EncoderInput& input);
std::unique_ptr<Encoder> build_qwen3(const EncoderInput& input);

// Without a config.json.
std::unique_ptr<Encoder> build_static_embedding(const StaticEmbeddingSpec& spec, EncoderParts parts);

// With a form of their own.
std::unique_ptr<Encoder> build_deberta_v2(const EncoderInput& input);
std::unique_ptr<Encoder> build_modernbert(const EncoderInput& input);
std::unique_ptr<Encoder> build_t5(const EncoderInput& input);

}  // namespace stft::model
