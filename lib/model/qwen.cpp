// Qwen2 (Yang et al., 2024): LLaMA with biases of query, key and value, and a window in its upper layers. Qwen3 (2025)
// normalizes the heads of query and key instead.
#include "model/decoder.h"
#include "model/families.h"
#include "model/layer_types.h"

namespace stft::model {
namespace {

DecoderConfig read_qwen_config(const FamilyConfig& config, const EncoderInput& input, std::optional<int64_t> head_dim) {
  DecoderConfig result = read_decoder_config(config, input, head_dim);
  const bool has_window = config.flag("use_sliding_window", false);
  const auto window = has_window ? std::optional(config.positive("sliding_window", 4096)) : std::nullopt;
  const int64_t first = config.index("max_window_layers", 28);
  const auto is_windowed = read_layer_types(config, result.attention.size(), [&](size_t layer) {
    return window.has_value() && static_cast<int64_t>(layer) >= first;
  });
  for (size_t i = 0; i < result.attention.size(); ++i) {
    if (is_windowed[i]) {
      if (!window) {
        config.refuse("layer_types", "sliding_attention without a sliding_window");
      }
      result.attention[i].reach = reach_of_window(*window, result.attention[i].is_causal);
    }
  }
  result.ropes.push_back(Rope::read(config, {result.head_dim, result.max_positions}));
  return result;
}

}  // namespace

std::unique_ptr<Encoder> build_qwen2(const EncoderInput& input) {
  const FamilyConfig config(input.config, input.origin);
  DecoderConfig result = read_qwen_config(config, input, std::nullopt);
  result.has_query_bias = true;
  return build_decoder(std::move(result), input.parts);
}

std::unique_ptr<Encoder> build_qwen3(const EncoderInput& input) {
  const FamilyConfig config(input.config, input.origin);
  DecoderConfig result = read_qwen_config(config, input, 128);
  result.has_query_bias = config.flag("attention_bias", false);
  result.has_output_bias = result.has_query_bias;
  result.normalizes_heads = true;
  return build_decoder(std::move(result), input.parts);
}

}  // namespace stft::model
