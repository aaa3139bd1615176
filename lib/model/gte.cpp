// GTE of transformers (Zhang et al., "mGTE", 2024): BERT with rotary positions and a gated MLP whose inner vectors are
// dropped too.
#include "model/families.h"
#include "model/post_norm_encoder.h"

namespace stft::model {

io::Json exported_gte_config(const io::Json& config, const std::string&) {
  io::Json result = config;
  result.erase("auto_map");  // whose code has the published names
  return result;
}

std::unique_ptr<Encoder> build_gte(const EncoderInput& input) {
  const FamilyConfig config(input.config, input.origin);
  PostNormConfig result = read_post_norm_config(config, input, "rope");
  take_rotary_gated_names(result.names);
  result.names.prefix = "gte.";
  result.type_vocab_size = config.index("type_vocab_size", 1);
  if (result.type_vocab_size == 0) {
    result.names.token_type = "";
  }
  result.padding_token = config.padding_token(result.vocab_size, 1);
  result.attention_dropout = input.dropout.value_or(config.probability("attention_probs_dropout_prob", 0));
  result.widening_has_bias = false;
  result.drops_inner = true;
  result.rope = Rope::read(config, {result.hidden_size / result.heads, result.position_rows, 160000.0});
  result.published_names = {{"new.", {""}},
                            {"encoder.layer.", {"layers."}},
                            {"attention.o_proj", {"self_attn.o_proj"}},
                            {"attn_ln", {"post_attention_layernorm"}},
                            {"mlp_ln", {"post_mlp_layernorm"}},
                            {"attention.qkv_proj", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
                            {"mlp.up_gate_proj", {"mlp.up_proj", "mlp.gate_proj"}}};
  return build_post_norm_encoder(std::move(result), input.parts);
}

}  // namespace stft::model
