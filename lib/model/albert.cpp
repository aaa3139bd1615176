// ALBERT (Lan et al., 2020): BERT whose layers share their weights, with narrow embeddings.
#include "model/families.h"
#include "model/post_norm_encoder.h"

namespace stft::model {

std::unique_ptr<Encoder> build_albert(const EncoderInput& input) {
  const FamilyConfig config(input.config, input.origin);
  PostNormConfig result = read_post_norm_config(config, input);
  PostNormNames& names = result.names;
  names.prefix = "albert.";
  names.embedding_projection = "encoder.embedding_hidden_mapping_in";
  names.layer = "encoder.albert_layer_groups.";
  names.in_layer = ".albert_layers.0.";
  names.query = "attention.query";
  names.key = "attention.key";
  names.value = "attention.value";
  names.attention_output = "attention.dense";
  names.attention_norm = "attention.LayerNorm";
  names.intermediate = "ffn";
  names.output = "ffn_output";
  names.output_norm = "full_layer_layer_norm";
  result.type_vocab_size = config.positive("type_vocab_size", 2);
  result.embedding_size = config.positive("embedding_size", 128);
  result.activation = read_activation(config, "hidden_act", "gelu_new");
  result.hidden_dropout = input.dropout.value_or(config.probability("hidden_dropout_prob", 0));
  result.attention_dropout = input.dropout.value_or(config.probability("attention_probs_dropout_prob", 0));
  result.drops_output = false;
  if (config.positive("inner_group_num", 1) != 1) {
    config.refuse("inner_group_num", "other than 1 is not available yet");
  }
  const int64_t groups = config.positive("num_hidden_groups", 1);
  config.require_multiple("num_hidden_layers", result.layers, "num_hidden_groups", groups);
  result.repeats = result.layers / groups;
  result.layers = groups;
  return build_post_norm_encoder(std::move(result), input.parts);
}

}  // namespace stft::model
