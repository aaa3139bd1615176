// Gemma 2 (Gemma Team, 2024): norms before and behind attention and MLP, every other layer local, capped scores.
// Gemma 3 (2025) and EmbeddingGemma, which sees both ways: head norms, five local layers to a global one, each kind
// with rotary positions of its own.
#include <cmath>

#include "model/decoder.h"
#include "model/families.h"
#include "model/layer_types.h"

namespace stft::model {
namespace {

DecoderConfig read_gemma_config(const FamilyConfig& config, const EncoderInput& input) {
  DecoderConfig result = read_decoder_config(config, input, 256);
  result.padding_token = config.padding_token(result.vocab_size, 0);
  result.activation = read_activation(config, "hidden_activation", "gelu_pytorch_tanh");
  result.has_query_bias = config.flag("attention_bias", false);
  result.has_output_bias = result.has_query_bias;
  result.has_outer_norms = true;
  result.norms_add_one = true;
  result.is_tied = config.flag("tie_word_embeddings", true);
  result.embedding_scale = std::sqrt(static_cast<double>(result.hidden_size));
  result.score_scale = 1.0 / std::sqrt(config.positive_number("query_pre_attn_scalar", 256));
  return result;
}

}  // namespace

std::unique_ptr<Encoder> build_gemma2(const EncoderInput& input) {
  const FamilyConfig config(input.config, input.origin);
  config.require_flag("use_bidirectional_attention", false);
  DecoderConfig result = read_gemma_config(config, input);
  const bool has_cap_key = input.config.contains("attn_logit_softcapping");
  result.score_soft_cap = config.positive_number("attn_logit_softcapping", has_cap_key ? 0 : 50);
  const int64_t window = config.positive("sliding_window", 4096);
  const auto is_local = read_layer_types(config, result.attention.size(), [](size_t i) { return i % 2 == 0; });
  for (size_t i = 0; i < is_local.size(); ++i) {
    if (is_local[i]) {
      result.attention[i].reach = reach_of_window(window, result.attention[i].is_causal);
    }
  }
  result.ropes.push_back(Rope::read(config, {result.head_dim, result.max_positions}));
  return build_decoder(std::move(result), input.parts);
}

std::unique_ptr<Encoder> build_gemma3(const EncoderInput& input) {
  const FamilyConfig config(input.config, input.origin);
  DecoderConfig result = read_gemma_config(config, input);
  result.normalizes_heads = true;
  result.score_soft_cap = config.positive_number("attn_logit_softcapping", 0);
  if (result.score_soft_cap > 0) {
    config.refuse("attn_logit_softcapping", "is not available yet");
  }
  const bool is_bidirectional = config.flag("use_bidirectional_attention", false);
  const int64_t configured = config.positive("sliding_window", 4096);
  const int64_t window = is_bidirectional ? configured / 2 + 1 : configured;
  const int64_t pattern = config.positive("sliding_window_pattern", 6);
  const auto is_local = read_layer_types(config, result.attention.size(),
                                         [&](size_t i) { return (static_cast<int64_t>(i) + 1) % pattern != 0; });
  for (size_t i = 0; i < is_local.size(); ++i) {
    DecoderAttention& attention = result.attention[i];
    if (is_local[i]) {
      // transformers counts the window differently for is_causal: false and for this family's own switch.
      attention.reach = reach_of_window(window, attention.is_causal);
      attention.rope = 1;
    }
    attention.is_causal = attention.is_causal && !is_bidirectional;
  }
  const RopeDefaults defaults{result.head_dim, result.max_positions};
  result.ropes.push_back(Rope::read_of_layer_type(config, {"full_attention", "rope_theta", 1e6}, defaults));
  result.ropes.push_back(
      Rope::read_of_layer_type(config, {"sliding_attention", "rope_local_base_freq", 1e4, false}, defaults));
  return build_decoder(std::move(result), input.parts);
}

}  // namespace stft::model
