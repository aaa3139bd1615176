// DistilBERT (Sanh et al., 2019): BERT without token types, and with its own names for everything.
#include "model/families.h"
#include "model/post_norm_encoder.h"

namespace stft::model {

std::unique_ptr<Encoder> build_distilbert(const EncoderInput& input) {
  const FamilyConfig config(input.config, input.origin);
  PostNormConfig result;
  PostNormNames& names = result.names;
  names.prefix = "distilbert.";
  names.token_type = "";
  names.layer = "transformer.layer.";
  names.query = "attention.q_lin";
  names.key = "attention.k_lin";
  names.value = "attention.v_lin";
  names.attention_output = "attention.out_lin";
  names.attention_norm = "sa_layer_norm";
  names.intermediate = "ffn.lin1";
  names.output = "ffn.lin2";
  names.output_norm = "output_layer_norm";
  result.vocab_size = config.positive("vocab_size");
  result.hidden_size = config.positive("dim");
  result.embedding_size = result.hidden_size;
  result.layers = config.layers("n_layers");
  result.heads = config.positive("n_heads");
  config.require_multiple("dim", result.hidden_size, "n_heads", result.heads);
  result.intermediate_size = config.positive("hidden_dim");
  result.position_rows = config.positive("max_position_embeddings");
  result.padding_token = config.padding_token(result.vocab_size, 0);
  result.hidden_dropout = input.dropout.value_or(config.probability("dropout", 0.1));
  result.attention_dropout = input.dropout.value_or(config.probability("attention_dropout", 0.1));
  result.drops_attention_output = false;
  result.activation = read_activation(config, "activation", "gelu");
  return build_post_norm_encoder(std::move(result), input.parts);
}

}  // namespace stft::model
