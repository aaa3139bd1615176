#include "model/decoder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "model/attention.h"
#include "model/run_block.h"

// Shape suffixes: T tokens, D hidden width.

namespace stft::model {
namespace {

struct Layer {
  RmsNorm input_norm;
  Linear query, key, value, attention_output;
  RmsNorm query_norm, key_norm;  // with normalizes_heads
  RmsNorm attention_outer_norm;  // with has_outer_norms
  RmsNorm mlp_norm;
  GatedMlp mlp;
  RmsNorm mlp_outer_norm;  // with has_outer_norms
};

// What the layers of one forward pass share; a recomputed layer outlives the caller's batch.
struct Shared {
  TokenBatch batch;
  std::vector<RopeAngles> angles;
};

class Decoder final : public Encoder {
 public:
  Decoder(DecoderConfig config, EncoderParts parts) : config_(std::move(config)), parts_(parts) {
    BlockBuilder builder(parts);
    builder.begin_block("embed_tokens", false);
    tokens_ = builder.embedding("embed_tokens", config_.vocab_size, config_.hidden_size, config_.padding_token);
    for (size_t i = 0; i < config_.attention.size(); ++i) {
      const std::string name = fmt::format("layers.{}", i);
      builder.begin_block(name, true);
      layers_.push_back(build_layer(builder, name));
    }
    // The last norm shares the last layer's block, being too small for one of its own.
    norm_ = builder.rms_norm("norm", config_.hidden_size, config_.norm_eps, config_.norms_add_one);
  }

  int64_t hidden_size() const override { return config_.hidden_size; }
  int64_t max_positions() const override { return config_.max_positions; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  std::string weight_prefix() const override { return "model."; }
  std::string tied_weight() const override { return config_.is_tied ? "lm_head.weight" : ""; }

  at::Tensor forward(const TokenBatch& batch, const ForwardContext& context) const override {
    const auto shared = std::make_shared<Shared>(Shared{batch, {}});
    for (const Rope& rope : config_.ropes) {
      shared->angles.push_back(rope.angles(batch));
    }
    auto hidden_TD = run_block(context, {0}, {}, [&](const at::Tensor&) {
      const auto embedded_TD = tokens_(batch.token_ids_T);
      return config_.embedding_scale == 1 ? embedded_TD : embedded_TD * config_.embedding_scale;
    });
    return run_layers(context, parts_, {1, layers_.size()}, std::move(hidden_TD),
                      [this, shared, context](size_t i, const at::Tensor& input_TD) {
                        const auto output_TD = forward_layer(i, input_TD, *shared, context);
                        return i + 1 == layers_.size() ? norm_(output_TD) : output_TD;
                      });
  }

 private:
  Layer build_layer(BlockBuilder& builder, const std::string& name) const {
    const int64_t hidden = config_.hidden_size;
    const int64_t queries = config_.heads * config_.head_dim;
    const int64_t keys = config_.key_heads * config_.head_dim;
    const auto norm = [&](const char* suffix, int64_t width) {
      return builder.rms_norm(name + suffix, width, config_.norm_eps, config_.norms_add_one);
    };
    Layer layer;
    layer.query = builder.linear(name + ".self_attn.q_proj", hidden, queries, config_.has_query_bias);
    layer.key = builder.linear(name + ".self_attn.k_proj", hidden, keys, config_.has_query_bias);
    layer.value = builder.linear(name + ".self_attn.v_proj", hidden, keys, config_.has_query_bias);
    layer.attention_output = builder.linear(name + ".self_attn.o_proj", queries, hidden, config_.has_output_bias);
    if (config_.normalizes_heads) {
      layer.query_norm = norm(".self_attn.q_norm", config_.head_dim);
      layer.key_norm = norm(".self_attn.k_norm", config_.head_dim);
    }
    layer.mlp.activation = config_.activation;
    layer.mlp.gate = builder.linear(name + ".mlp.gate_proj", hidden, config_.intermediate_size, config_.has_mlp_bias);
    layer.mlp.up = builder.linear(name + ".mlp.up_proj", hidden, config_.intermediate_size, config_.has_mlp_bias);
    layer.mlp.down = builder.linear(name + ".mlp.down_proj", config_.intermediate_size, hidden, config_.has_mlp_bias);
    layer.input_norm = norm(".input_layernorm", hidden);
    if (config_.has_outer_norms) {
      layer.attention_outer_norm = norm(".post_attention_layernorm", hidden);
      layer.mlp_norm = norm(".pre_feedforward_layernorm", hidden);
      layer.mlp_outer_norm = norm(".post_feedforward_layernorm", hidden);
    } else {
      layer.mlp_norm = norm(".post_attention_layernorm", hidden);
    }
    return layer;
  }

  at::Tensor normalize_heads(const RmsNorm& norm, const at::Tensor& heads_TD) const {
    if (!config_.normalizes_heads) {
      return heads_TD;
    }
    return norm(heads_TD.view({heads_TD.size(0), -1, config_.head_dim})).view(heads_TD.sizes());
  }

  at::Tensor forward_attention(size_t i, const at::Tensor& input_TD, const Shared& shared,
                               const ForwardContext& context) const {
    const Layer& layer = layers_[i];
    const DecoderAttention& attention = config_.attention[i];
    const RopeAngles& angles = shared.angles[attention.rope];
    AttentionPlan plan;
    plan.heads = config_.heads;
    plan.key_heads = config_.key_heads;
    plan.layer = static_cast<uint32_t>(i) + 1;
    plan.dropout = config_.attention_dropout;
    plan.is_causal = attention.is_causal;
    plan.reach = attention.reach;
    plan.scale = config_.score_scale;
    plan.soft_cap = config_.score_soft_cap;
    const LayerPass pass{shared.batch, context, plan.layer};
    const auto query_TD = rotate(normalize_heads(layer.query_norm, layer.query(input_TD, pass)), angles);
    const auto key_TD = rotate(normalize_heads(layer.key_norm, layer.key(input_TD, pass)), angles);
    return layer.attention_output(attend(query_TD, key_TD, layer.value(input_TD, pass), shared.batch, context, plan),
                                  pass);
  }

  at::Tensor forward_layer(size_t i, const at::Tensor& input_TD, const Shared& shared,
                           const ForwardContext& context) const {
    const Layer& layer = layers_[i];
    const auto outer = [&](const RmsNorm& norm, const at::Tensor& output_TD) {
      return config_.has_outer_norms ? norm(output_TD) : output_TD;
    };
    const auto attended_TD = forward_attention(i, layer.input_norm(input_TD), shared, context);
    const auto middle_TD = input_TD + outer(layer.attention_outer_norm, attended_TD);
    return middle_TD + outer(layer.mlp_outer_norm, layer.mlp(layer.mlp_norm(middle_TD),
                                                             {shared.batch, context, static_cast<uint32_t>(i) + 1}));
  }

  DecoderConfig config_;
  EncoderParts parts_;
  Embedding tokens_;
  std::vector<Layer> layers_;
  RmsNorm norm_;
};

}  // namespace

int64_t reach_of_window(int64_t window, bool is_causal) {
  return is_causal ? window - 1 : window;
}

DecoderConfig read_decoder_config(const FamilyConfig& config, const EncoderInput& input,
                                  std::optional<int64_t> head_dim) {
  DecoderConfig result;
  result.vocab_size = config.positive("vocab_size");
  result.hidden_size = config.positive("hidden_size");
  result.intermediate_size = config.positive("intermediate_size");
  result.heads = config.positive("num_attention_heads");
  result.key_heads = config.positive("num_key_value_heads", result.heads);
  config.require_multiple("num_attention_heads", result.heads, "num_key_value_heads", result.key_heads);
  const auto own_head_dim = config.optional_positive("head_dim");
  if (own_head_dim || head_dim) {
    result.head_dim = own_head_dim ? *own_head_dim : *head_dim;
  } else {
    config.require_multiple("hidden_size", result.hidden_size, "num_attention_heads", result.heads);
    result.head_dim = result.hidden_size / result.heads;
  }
  result.max_positions = config.positive("max_position_embeddings");
  result.padding_token = config.padding_token(result.vocab_size, std::nullopt);
  result.norm_eps = config.epsilon("rms_norm_eps", 1e-6);
  result.attention_dropout = input.dropout.value_or(config.probability("attention_dropout", 0));
  result.activation = read_activation(config, "hidden_act", "silu");
  result.is_tied = config.flag("tie_word_embeddings", false);
  const bool is_causal = config.flag("is_causal", true);
  result.attention.assign(static_cast<size_t>(config.layers()), DecoderAttention{is_causal});
  return result;
}

std::unique_ptr<Encoder> build_decoder(DecoderConfig config, EncoderParts parts) {
  return std::make_unique<Decoder>(std::move(config), parts);
}

}  // namespace stft::model
