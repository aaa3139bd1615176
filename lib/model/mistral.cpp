// Mistral (Jiang et al., "Mistral 7B", 2023): LLaMA with a sliding window.
#include "model/decoder.h"
#include "model/families.h"

namespace stft::model {

std::unique_ptr<Encoder> build_mistral(const EncoderInput& input) {
  const FamilyConfig config(input.config, input.origin);
  DecoderConfig result = read_decoder_config(config, input);
  // Null means no window; a config without the key has transformers' default.
  const bool has_window_key = input.config.contains("sliding_window");
  const auto window = has_window_key ? config.optional_positive("sliding_window") : std::optional<int64_t>(4096);
  for (DecoderAttention& attention : result.attention) {
    if (window) {
      attention.reach = reach_of_window(*window, attention.is_causal);
    }
  }
  result.ropes.push_back(Rope::read(config, {result.head_dim, result.max_positions}));
  return build_decoder(std::move(result), input.parts);
}

}  // namespace stft::model
