// Bidirectional transformer layers that normalize after each residual sum (Vaswani et al., 2017), as BERT and its
// relatives have them. Poolers and heads are not part of a sentence embedding and are not built.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/encoder.h"
#include "model/layers.h"
#include "model/relative_bias.h"
#include "model/rope.h"

namespace stft::model {

// The tensors' names; those of a layer stand behind `layer`, the layer's number and `in_layer`. Empty: the family has
// none.
struct PostNormNames {
  const char* prefix = "";  // of files with a head
  const char* word = "embeddings.word_embeddings";
  const char* position = "embeddings.position_embeddings";
  const char* token_type = "embeddings.token_type_embeddings";
  const char* embedding_norm = "embeddings.LayerNorm";
  const char* embedding_projection = "";  // from embedding_size to hidden_size
  const char* relative_bias = "";         // a table [buckets, heads] for the scores of all layers
  const char* layer = "encoder.layer.";
  const char* in_layer = ".";
  const char* query = "attention.self.query";
  const char* key = "attention.self.key";
  const char* value = "attention.self.value";
  const char* attention_output = "attention.output.dense";
  const char* attention_norm = "attention.output.LayerNorm";
  const char* gate = "";  // with one the MLP is gated
  const char* intermediate = "intermediate.dense";
  const char* output = "output.dense";
  const char* output_norm = "output.LayerNorm";
};

struct PostNormConfig {
  PostNormNames names;
  int64_t vocab_size = 0;
  int64_t embedding_size = 0;
  int64_t hidden_size = 0;
  int64_t layers = 0;   // that have weights of their own
  int64_t repeats = 1;  // how often each of them is run before the next one
  int64_t heads = 0;
  int64_t intermediate_size = 0;
  int64_t position_rows = 0;  // of the table of positions
  int64_t type_vocab_size = 0;
  std::optional<int64_t> padding_token;  // its embedding gets no gradient
  // Positions are counted from behind the padding token's id, and the token itself stands at it (RoBERTa).
  bool counts_from_padding = false;
  double norm_eps = 1e-12;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  bool drops_attention_output = true;
  bool drops_output = true;       // of the MLP
  bool drops_inner = false;       // between the MLP's projections
  bool has_bias = true;           // of the projections
  bool widening_has_bias = true;  // of the MLP's first projections, where the others have one
  Activation activation = Activation::kGelu;
  std::optional<Rope> rope;
  std::optional<RelativeBuckets> relative;  // with names.relative_bias
  std::vector<PublishedName> published_names;

  // How long a text can be.
  int64_t max_positions() const { return position_rows - (counts_from_padding ? *padding_token + 1 : 0); }
};

// What BERT's relatives name alike in config.json; its position_embedding_type, if any, must be `positions`.
PostNormConfig read_post_norm_config(const FamilyConfig& config, const EncoderInput& input,
                                     const char* positions = "absolute");

// The names of the layers of transformers' encoders with rotary positions and a gated MLP.
void take_rotary_gated_names(PostNormNames& names);

// UserError when positions that are counted from behind the padding token leave none for a text.
void require_room_for_positions(const FamilyConfig& config, const PostNormConfig& result);

std::unique_ptr<Encoder> build_post_norm_encoder(PostNormConfig config, EncoderParts parts);

}  // namespace stft::model
