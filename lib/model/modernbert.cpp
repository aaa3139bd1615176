// ModernBERT (Warner et al., "Smarter, Better, Faster, Longer", 2024): pre-norm layers with gated MLPs, most of them
// local, with rotary positions of their own for local and global ones.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <utility>
#include <vector>

#include "model/attention.h"
#include "model/families.h"
#include "model/layer_types.h"
#include "model/layers.h"
#include "model/rope.h"
#include "model/run_block.h"

// Shape suffixes: T tokens, D hidden width.

namespace stft::model {
namespace {

using io::Json;

struct Config {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t heads = 0;
  int64_t max_positions = 0;
  std::optional<int64_t> padding_token;
  double norm_eps = 1e-5;
  bool has_norm_bias = false, has_attention_bias = false, has_mlp_bias = false;
  double embedding_dropout = 0, attention_dropout = 0, mlp_dropout = 0;
  Activation activation = Activation::kGelu;
  int64_t reach = 64;
  std::vector<bool> is_local;      // of each layer
  std::array<Rope, 2> ropes = {};  // global, local
};

Config read_config(const FamilyConfig& config, const EncoderInput& input) {
  Config result;
  result.vocab_size = config.positive("vocab_size");
  result.hidden_size = config.positive("hidden_size");
  result.intermediate_size = config.positive("intermediate_size");
  result.heads = config.positive("num_attention_heads");
  config.require_multiple("hidden_size", result.hidden_size, "num_attention_heads", result.heads);
  result.max_positions = config.positive("max_position_embeddings");
  result.padding_token = config.padding_token(result.vocab_size, 50283);
  result.norm_eps = config.epsilon("norm_eps", 1e-5);
  result.has_norm_bias = config.flag("norm_bias", false);
  result.has_attention_bias = config.flag("attention_bias", false);
  result.has_mlp_bias = config.flag("mlp_bias", false);
  result.embedding_dropout = input.dropout.value_or(config.probability("embedding_dropout", 0));
  result.attention_dropout = input.dropout.value_or(config.probability("attention_dropout", 0));
  result.mlp_dropout = input.dropout.value_or(config.probability("mlp_dropout", 0));
  result.activation = read_activation(config, "hidden_activation", "gelu");
  result.reach = config.positive("local_attention", 128) / 2;
  const int64_t every = config.positive("global_attn_every_n_layers", 3);
  result.is_local = read_layer_types(config, static_cast<size_t>(config.layers()),
                                     [&](size_t i) { return static_cast<int64_t>(i) % every != 0; });
  const RopeDefaults defaults{result.hidden_size / result.heads, result.max_positions};
  result.ropes[0] = Rope::read_of_layer_type(config, {"full_attention", "global_rope_theta", 160000.0}, defaults);
  result.ropes[1] = Rope::read_of_layer_type(config, {"sliding_attention", "local_rope_theta", 10000.0}, defaults);
  return result;
}

struct Layer {
  LayerNorm attention_norm;  // none in the first layer
  Linear query_key_value, attention_output;
  LayerNorm mlp_norm;
  Linear mlp_input, mlp_output;
};

// What the layers of one forward pass share; a recomputed layer outlives the caller's batch.
struct Shared {
  TokenBatch batch;
  std::array<RopeAngles, 2> angles;
};

class ModernBert final : public Encoder {
 public:
  ModernBert(Config config, EncoderParts parts) : config_(std::move(config)), parts_(parts) {
    BlockBuilder builder(parts);
    builder.begin_block("embeddings", false);
    tokens_ =
        builder.embedding("embeddings.tok_embeddings", config_.vocab_size, config_.hidden_size, config_.padding_token);
    for (size_t i = 0; i < config_.is_local.size(); ++i) {
      const std::string name = fmt::format("layers.{}", i);
      builder.begin_block(name, true);
      if (i == 0) {
        embedding_norm_ = norm(builder, "embeddings.norm");
      }
      layers_.push_back(build_layer(builder, name, i == 0));
    }
    final_norm_ = norm(builder, "final_norm");
  }

  int64_t hidden_size() const override { return config_.hidden_size; }
  int64_t max_positions() const override { return config_.max_positions; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  std::string weight_prefix() const override { return "model."; }

  at::Tensor forward(const TokenBatch& batch, const ForwardContext& context) const override {
    const auto shared =
        std::make_shared<Shared>(Shared{batch, {config_.ropes[0].angles(batch), config_.ropes[1].angles(batch)}});
    auto hidden_TD = run_block(context, {0}, {}, [&](const at::Tensor&) { return tokens_(batch.token_ids_T); });
    return run_layers(context, parts_, {1, layers_.size()}, std::move(hidden_TD),
                      [this, shared, context](size_t i, const at::Tensor& input_TD) {
                        const auto embedded_TD = i == 0 ? drop_tokens(embedding_norm_(input_TD), shared->batch, context,
                                                                      {0, 1, config_.embedding_dropout})
                                                        : input_TD;
                        const auto output_TD = forward_layer(i, embedded_TD, *shared, context);
                        return i + 1 == layers_.size() ? final_norm_(output_TD) : output_TD;
                      });
  }

 private:
  LayerNorm norm(BlockBuilder& builder, const std::string& name) const {
    return builder.layer_norm(name, config_.hidden_size, config_.norm_eps, config_.has_norm_bias);
  }

  Layer build_layer(BlockBuilder& builder, const std::string& name, bool is_first) const {
    const int64_t hidden = config_.hidden_size;
    Layer layer;
    if (!is_first) {
      layer.attention_norm = norm(builder, name + ".attn_norm");
    }
    layer.query_key_value = builder.linear(name + ".attn.Wqkv", hidden, 3 * hidden, config_.has_attention_bias);
    layer.attention_output = builder.linear(name + ".attn.Wo", hidden, hidden, config_.has_attention_bias);
    layer.mlp_norm = norm(builder, name + ".mlp_norm");
    layer.mlp_input = builder.linear(name + ".mlp.Wi", hidden, 2 * config_.intermediate_size, config_.has_mlp_bias);
    layer.mlp_output = builder.linear(name + ".mlp.Wo", config_.intermediate_size, hidden, config_.has_mlp_bias);
    return layer;
  }

  at::Tensor forward_attention(size_t i, const at::Tensor& input_TD, const Shared& shared,
                               const ForwardContext& context) const {
    const Layer& layer = layers_[i];
    const bool is_local = config_.is_local[i];
    AttentionPlan plan;
    plan.heads = config_.heads;
    plan.layer = static_cast<uint32_t>(i) + 1;
    plan.dropout = config_.attention_dropout;
    if (is_local) {
      plan.reach = config_.reach;
    }
    const RopeAngles& angles = shared.angles[is_local ? 1 : 0];
    const LayerPass pass{shared.batch, context, plan.layer};
    const auto parts = layer.query_key_value(input_TD, pass).chunk(3, -1);
    const auto attended_TD =
        attend(rotate(parts[0], angles), rotate(parts[1], angles), parts[2], shared.batch, context, plan);
    return drop_tokens(layer.attention_output(attended_TD, pass), shared.batch, context,
                       {plan.layer, 1, config_.attention_dropout});
  }

  at::Tensor forward_layer(size_t i, const at::Tensor& input_TD, const Shared& shared,
                           const ForwardContext& context) const {
    const Layer& layer = layers_[i];
    const auto normed_TD = layer.attention_norm.weight != nullptr ? layer.attention_norm(input_TD) : input_TD;
    const auto middle_TD = input_TD + forward_attention(i, normed_TD, shared, context);
    const LayerPass pass{shared.batch, context, static_cast<uint32_t>(i) + 1};
    const auto parts = layer.mlp_input(layer.mlp_norm(middle_TD), pass).chunk(2, -1);
    const auto inner = drop_tokens(activate(config_.activation, parts[0]) * parts[1], shared.batch, context,
                                   {static_cast<uint32_t>(i) + 1, 2, config_.mlp_dropout});
    return middle_TD + layer.mlp_output(inner, pass);
  }

  Config config_;
  EncoderParts parts_;
  Embedding tokens_;
  LayerNorm embedding_norm_, final_norm_;
  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<Encoder> build_modernbert(const EncoderInput& input) {
  return std::make_unique<ModernBert>(read_config(FamilyConfig(input.config, input.origin), input), input.parts);
}

}  // namespace stft::model
