// The encoder of T5 (Raffel et al., "Exploring the Limits of Transfer Learning", 2020): pre-norm layers, scores that
// are not scaled and have a bias by relative position, which all layers share.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "model/attention.h"
#include "model/families.h"
#include "model/layers.h"
#include "model/relative_bias.h"
#include "model/run_block.h"
#include "model/side_tensor.h"

// Shape suffixes: T tokens, D model width.

namespace stft::model {
namespace {

constexpr int64_t kLongestText = int64_t{1} << 20;  // relative positions set no limit

struct Config {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  RelativeBuckets relative;
  double norm_eps = 1e-6;
  double dropout = 0.1;
  bool is_gated = false;
  Activation activation = Activation::kRelu;
};

Config read_config(const FamilyConfig& config, const EncoderInput& input) {
  Config result;
  result.vocab_size = config.positive("vocab_size");
  result.hidden_size = config.positive("d_model");
  result.intermediate_size = config.positive("d_ff");
  result.layers = config.layers("num_layers");
  result.heads = config.positive("num_heads");
  result.head_dim = config.positive("d_kv", 64);
  result.relative.buckets = config.positive("relative_attention_num_buckets", 32);
  result.relative.max_distance = config.positive("relative_attention_max_distance", 128);
  if (result.relative.buckets < 4 || result.relative.max_distance <= result.relative.buckets / 4) {
    config.refuse("relative_attention_num_buckets",
                  "expected at least 4 and less than relative_attention_max_distance");
  }
  result.norm_eps = config.epsilon("layer_norm_epsilon", 1e-6);
  result.dropout = input.dropout.value_or(config.probability("dropout_rate", 0.1));
  const std::string mlp = config.text("feed_forward_proj", "relu");
  result.is_gated = mlp.starts_with("gated-");
  const std::string activation = mlp.substr(result.is_gated ? 6 : 0);
  const io::Json named = {{"feed_forward_proj", mlp == "gated-gelu" ? "gelu_new" : activation}};
  result.activation = read_activation(FamilyConfig(named, config.origin()), "feed_forward_proj", "relu");
  return result;
}

struct Layer {
  RmsNorm attention_norm;
  Linear query, key, value, attention_output;
  RmsNorm mlp_norm;
  Linear gate, intermediate, output;
};

// What the layers of one forward pass share; a recomputed layer outlives the caller's batch.
struct Shared {
  TokenBatch batch;
  ScoreBias bias = nullptr;
};

class T5 final : public Encoder {
 public:
  T5(const Config& config, EncoderParts parts) : config_(config), parts_(parts) {
    BlockBuilder builder(parts);
    builder.begin_block("shared", false);
    tokens_ = builder.embedding("shared", config.vocab_size, config.hidden_size, std::nullopt);
    relative_bias_ = builder.add("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                                 {config.relative.buckets, config.heads}, false);
    for (int64_t i = 0; i < config.layers; ++i) {
      const std::string name = fmt::format("encoder.block.{}", i);
      builder.begin_block(name, true);
      layers_.push_back(build_layer(builder, name));
    }
    final_norm_ = builder.rms_norm("encoder.final_layer_norm", config.hidden_size, config.norm_eps);
  }

  int64_t hidden_size() const override { return config_.hidden_size; }
  int64_t max_positions() const override { return kLongestText; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  std::string weight_prefix() const override { return "transformer."; }
  std::string tied_weight() const override { return "encoder.embed_tokens.weight"; }
  std::string input_copy() const override { return tied_weight(); }

  at::Tensor forward(const TokenBatch& batch, const ForwardContext& context) const override {
    const auto shared = std::make_shared<Shared>(Shared{batch, nullptr});
    auto hidden_TD = run_block(context, {0}, {}, [&](const at::Tensor&) {
      const auto rows = relative_bias_rows(value(*relative_bias_), config_.relative, batch.buckets.back().length);
      auto [tokens_TD, side] = with_side(tokens_(batch.token_ids_T), rows);
      shared->bias = relative_score_bias(std::move(side));
      return tokens_TD;
    });
    return run_layers(context, parts_, {1, layers_.size()}, std::move(hidden_TD),
                      [this, shared, context](size_t i, const at::Tensor& input_TD) {
                        const auto drop = [&](const at::Tensor& tokens_TD, uint32_t site) {
                          return drop_tokens(tokens_TD, shared->batch, context, {0, site, config_.dropout});
                        };
                        const auto output_TD =
                            forward_layer(i, i == 0 ? drop(input_TD, 1) : input_TD, *shared, context);
                        return i + 1 == layers_.size() ? drop(final_norm_(output_TD), 2) : output_TD;
                      });
  }

 private:
  Layer build_layer(BlockBuilder& builder, const std::string& name) const {
    const int64_t hidden = config_.hidden_size;
    const int64_t inner = config_.heads * config_.head_dim;
    const std::string attention = name + ".layer.0.SelfAttention.";
    const std::string mlp = name + ".layer.1.DenseReluDense.";
    const auto linear = [&](const std::string& full_name, int64_t in, int64_t out) {
      return builder.linear(full_name, in, out, false);
    };
    Layer layer;
    layer.query = linear(attention + "q", hidden, inner);
    layer.key = linear(attention + "k", hidden, inner);
    layer.value = linear(attention + "v", hidden, inner);
    layer.attention_output = linear(attention + "o", inner, hidden);
    layer.attention_norm = builder.rms_norm(name + ".layer.0.layer_norm", hidden, config_.norm_eps);
    if (config_.is_gated) {
      layer.gate = linear(mlp + "wi_0", hidden, config_.intermediate_size);
    }
    layer.intermediate = linear(mlp + (config_.is_gated ? "wi_1" : "wi"), hidden, config_.intermediate_size);
    layer.output = builder.whole_linear(mlp + "wo", config_.intermediate_size, hidden);
    layer.mlp_norm = builder.rms_norm(name + ".layer.1.layer_norm", hidden, config_.norm_eps);
    return layer;
  }

  at::Tensor forward_layer(size_t i, const at::Tensor& input_TD, const Shared& shared,
                           const ForwardContext& context) const {
    const Layer& layer = layers_[i];
    AttentionPlan plan;
    plan.heads = config_.heads;
    plan.layer = static_cast<uint32_t>(i) + 1;
    plan.dropout = config_.dropout;
    plan.scale = 1.0;
    plan.bias = shared.bias;
    const auto drop = [&](const at::Tensor& tokens_TD, uint32_t site) {
      return drop_tokens(tokens_TD, shared.batch, context, {plan.layer, site, config_.dropout});
    };
    const LayerPass pass{shared.batch, context, plan.layer};
    const auto normed_TD = layer.attention_norm(input_TD);
    const auto attended_TD = attend(layer.query(normed_TD, pass), layer.key(normed_TD, pass),
                                    layer.value(normed_TD, pass), shared.batch, context, plan);
    const auto middle_TD = input_TD + drop(layer.attention_output(attended_TD, pass), 1);
    const auto mlp_input_TD = layer.mlp_norm(middle_TD);
    auto inner =
        activate(config_.activation, (layer.gate.exists() ? layer.gate : layer.intermediate)(mlp_input_TD, pass));
    if (layer.gate.exists()) {
      inner = inner * layer.intermediate(mlp_input_TD, pass);
    }
    return middle_TD + drop(layer.output(drop(inner, 2), pass), 3);
  }

  Config config_;
  EncoderParts parts_;
  Embedding tokens_;
  const Parameter* relative_bias_ = nullptr;
  std::vector<Layer> layers_;
  RmsNorm final_norm_;
};

}  // namespace

std::unique_ptr<Encoder> build_t5(const EncoderInput& input) {
  return std::make_unique<T5>(read_config(FamilyConfig(input.config, input.origin), input), input.parts);
}

}  // namespace stft::model
