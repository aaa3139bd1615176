// NomicBERT (Nussbaum et al., "Nomic Embed", 2024): BERT with rotary positions, a gated MLP and no biases.
#include <array>
#include <utility>

#include "model/families.h"
#include "model/post_norm_encoder.h"

namespace stft::model {
namespace {

using io::Json;

// Files that were published before transformers had the family have GPT-2's names for its sizes.
Json with_current_names(const Json& published, const FamilyConfig& config) {
  Json result = published;
  constexpr std::array<std::pair<const char*, const char*>, 10> kNames = {{
      {"n_embd", "hidden_size"},
      {"n_layer", "num_hidden_layers"},
      {"n_head", "num_attention_heads"},
      {"n_inner", "intermediate_size"},
      {"n_positions", "max_position_embeddings"},
      {"layer_norm_epsilon", "layer_norm_eps"},
      {"resid_pdrop", "hidden_dropout_prob"},
      {"attn_pdrop", "attention_probs_dropout_prob"},
      {"rotary_emb_base", "rope_theta"},
      {"activation_function", "hidden_act"},
  }};
  for (const auto& [older, current] : kNames) {
    if (result.is_object() && result.contains(older) && !result.contains(current)) {
      result[current] = result.at(older);
    }
  }
  if (io::optional_string(result, "hidden_act", config.origin()) == "swiglu") {
    result["hidden_act"] = "silu";
  }
  return result;
}

// What those files can switch on and this family does not have.
void refuse_published_variants(const FamilyConfig& config) {
  for (const char* key : {"prenorm", "use_rms_norm", "causal", "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias",
                          "rotary_emb_interleaved"}) {
    config.require_flag(key, false);
  }
  if (config.optional_positive_number("rotary_scaling_factor")) {
    config.refuse("rotary_scaling_factor", "is not available yet");
  }
  if (config.positive_number("rotary_emb_fraction", 1) != 1) {
    config.refuse("rotary_emb_fraction", "other than 1 is not available yet");
  }
}

}  // namespace

Json exported_nomic_bert_config(const Json& config, const std::string& origin) {
  Json result = with_current_names(config, FamilyConfig(config, origin));
  result.erase("auto_map");  // whose code has the published names
  return result;
}

std::unique_ptr<Encoder> build_nomic_bert(const EncoderInput& input) {
  const Json current = with_current_names(input.config, FamilyConfig(input.config, input.origin));
  const FamilyConfig config(current, input.origin);
  refuse_published_variants(config);
  PostNormConfig result = read_post_norm_config(config, input);
  take_rotary_gated_names(result.names);
  result.names.prefix = "nomic_bert.";
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
  result.published_names = {{"encoder.layers.", {"layers."}},
                            {"emb_ln", {"embeddings.LayerNorm"}},
                            {"attn.out_proj", {"self_attn.o_proj"}},
                            {"attn.Wqkv", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
                            {"fc11", {"up_proj"}},
                            {"fc12", {"gate_proj"}},
                            {"fc2", {"down_proj"}},
                            {"norm1", {"post_attention_layernorm"}},
                            {"norm2", {"post_mlp_layernorm"}}};
  return build_post_norm_encoder(std::move(result), input.parts);
}

}  // namespace stft::model
