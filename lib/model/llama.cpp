// LLaMA (Touvron et al., 2023) and what takes its form (SmolLM2, TinyLlama, Llama 3).
#include "model/decoder.h"
#include "model/families.h"

namespace stft::model {

std::unique_ptr<Encoder> build_llama(const EncoderInput& input) {
  const FamilyConfig config(input.config, input.origin);
  DecoderConfig result = read_decoder_config(config, input);
  result.has_query_bias = config.flag("attention_bias", false);
  result.has_output_bias = result.has_query_bias;
  result.has_mlp_bias = config.flag("mlp_bias", false);
  result.ropes.push_back(Rope::read(config, {result.head_dim, result.max_positions}));
  return build_decoder(std::move(result), input.parts);
}

}  // namespace stft::model
