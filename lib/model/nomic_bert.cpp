// NomicBERT (Nussbaum et al., "Nomic Embed", 2024): BERT with rotary positions, a gated MLP and no biases.
#include "model/families.h"
#include "model/post_norm_encoder.h"

namespace stft::model {

std::unique_ptr<Encoder> build_nomic_bert(const EncoderInput& input) {
  const FamilyConfig config(input.config, input.origin);
  PostNormConfig result = read_post_norm_config(config, input);
  PostNormNames& names = result.names;
  names.prefix = "nomic_bert.";
  names.position = "";
  names.layer = "layers.";
  names.query = "self_attn.q_proj";
  names.key = "self_attn.k_proj";
  names.value = "self_attn.v_proj";
  names.attention_output = "self_attn.o_proj";
  names.attention_norm = "post_attention_layernorm";
  names.gate = "mlp.gate_proj";
  names.intermediate = "mlp.up_proj";
  names.output = "mlp.down_proj";
  names.output_norm = "post_mlp_layernorm";
  result.type_vocab_size = config.positive("type_vocab_size", 2);
  result.has_bias = false;
  result.activation = read_activation(config, "hidden_act", "silu");
  result.hidden_dropout = input.dropout.value_or(config.probability("hidden_dropout_prob", 0));
  result.attention_dropout = input.dropout.value_or(config.probability("attention_probs_dropout_prob", 0));
  const int64_t head_dim = result.hidden_size / result.heads;
  if (config.positive("head_dim", head_dim) != head_dim) {
    config.refuse("head_dim", "other than hidden_size / num_attention_heads is not available yet");
  }
  result.rope = Rope::read(config, {head_dim, result.position_rows, 1000.0});
  return build_post_norm_encoder(std::move(result), input.parts);
}

}  // namespace stft::model
