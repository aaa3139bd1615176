// Pre-norm transformer layers with rotary positions and gated MLPs, as decoders have them (Touvron et al., "LLaMA",
// 2023, and its successors); weights named as in transformers' LlamaModel. The language-model head is not part of a
// sentence embedding and is not built.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/encoder.h"
#include "model/layers.h"
#include "model/rope.h"

namespace stft::model {

// Where a layer's attention looks.
struct DecoderAttention {
  bool is_causal = true;
  std::optional<int64_t> reach = std::nullopt;  // as AttentionPlan's
  size_t rope = 0;                              // index into DecoderConfig::ropes
};

struct DecoderConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t heads = 0;
  int64_t key_heads = 0;
  int64_t head_dim = 0;
  int64_t max_positions = 0;
  std::optional<int64_t> padding_token;  // its embedding gets no gradient
  double norm_eps = 1e-6;
  double attention_dropout = 0.0;
  Activation activation = Activation::kSilu;
  bool has_query_bias = false;   // and of key and value
  bool has_output_bias = false;  // of the attention's output
  bool has_mlp_bias = false;
  bool normalizes_heads = false;  // query and key, each head on its own, before the rotation
  bool norms_add_one = false;
  bool has_outer_norms = false;  // the outputs of attention and MLP are normalized too
  bool is_tied = false;          // the head is the table of embeddings
  double embedding_scale = 1.0;
  std::optional<double> score_scale;
  double score_soft_cap = 0.0;
  std::vector<Rope> ropes;
  std::vector<DecoderAttention> attention;  // of each layer
};

// What all decoders' config.json have in common, without ropes; every layer attends to everything that is_causal
// allows. `head_dim`: the family's default for the key; none: hidden_size / num_attention_heads.
DecoderConfig read_decoder_config(const FamilyConfig& config, const EncoderInput& input,
                                  std::optional<int64_t> head_dim = std::nullopt);

// How far a token sees with `window` of transformers: causal, the token counts as one of the window.
int64_t reach_of_window(int64_t window, bool is_causal);

std::unique_ptr<Encoder> build_decoder(DecoderConfig config, EncoderParts parts);

}  // namespace stft::model
