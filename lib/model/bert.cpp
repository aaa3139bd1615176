#include "model/bert.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "model/attention.h"
#include "model/run_block.h"

// Shape suffixes: T tokens, D hidden width.

namespace stft::model {
namespace {

using io::Json;

constexpr int64_t kMaxLayers = 4094;  // what the dropout's counter has room for

struct BertConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t intermediate_size = 0;
  int64_t max_positions = 0;
  int64_t type_vocab_size = 0;
  double layer_norm_eps = 1e-12;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  bool gelu_is_tanh = false;
  bool activation_is_relu = false;
};

int64_t positive(const Json& config, const std::string& key, const std::string& origin) {
  const int64_t value = io::get_int(config, key, origin);
  if (value <= 0 || value > (int64_t{1} << 31)) {
    throw UserError(fmt::format("{}: {}: expected a positive number, found {}", origin, key, value));
  }
  return value;
}

double probability(const Json& config, const std::string& key, const std::string& origin) {
  const double value = io::optional_double(config, key, origin).value_or(0.1);
  if (!(value >= 0 && value < 1)) {
    throw UserError(fmt::format("{}: {}: expected a number from 0 to below 1, found {}", origin, key, value));
  }
  return value;
}

BertConfig read_config(const Json& config, const std::string& origin, std::optional<double> dropout) {
  BertConfig result;
  result.vocab_size = positive(config, "vocab_size", origin);
  result.hidden_size = positive(config, "hidden_size", origin);
  result.layers = positive(config, "num_hidden_layers", origin);
  result.heads = positive(config, "num_attention_heads", origin);
  result.intermediate_size = positive(config, "intermediate_size", origin);
  result.max_positions = positive(config, "max_position_embeddings", origin);
  result.type_vocab_size = positive(config, "type_vocab_size", origin);
  if (result.hidden_size % result.heads != 0) {
    throw UserError(fmt::format("{}: hidden_size {} is not a multiple of num_attention_heads {}", origin,
                                result.hidden_size, result.heads));
  }
  result.layer_norm_eps = io::optional_double(config, "layer_norm_eps", origin).value_or(1e-12);
  if (!(result.layer_norm_eps > 0 && result.layer_norm_eps < 1)) {
    throw UserError(
        fmt::format("{}: layer_norm_eps: expected a number between 0 and 1, found {}", origin, result.layer_norm_eps));
  }
  if (result.layers > kMaxLayers) {
    throw UserError(
        fmt::format("{}: num_hidden_layers: expected at most {}, found {}", origin, kMaxLayers, result.layers));
  }
  result.hidden_dropout = dropout.value_or(probability(config, "hidden_dropout_prob", origin));
  result.attention_dropout = dropout.value_or(probability(config, "attention_probs_dropout_prob", origin));
  const auto activation = io::optional_string(config, "hidden_act", origin).value_or("gelu");
  result.gelu_is_tanh = activation == "gelu_new" || activation == "gelu_pytorch_tanh";
  result.activation_is_relu = activation == "relu";
  if (activation != "gelu" && !result.gelu_is_tanh && !result.activation_is_relu) {
    throw UserError(
        fmt::format("{}: hidden_act '{}' is not available yet (gelu, gelu_new, relu are)", origin, activation));
  }
  const auto positions = io::optional_string(config, "position_embedding_type", origin).value_or("absolute");
  if (positions != "absolute") {
    throw UserError(fmt::format("{}: position_embedding_type '{}' is not available yet", origin, positions));
  }
  if (io::optional_bool(config, "is_decoder", origin).value_or(false)) {
    throw UserError(origin + ": is_decoder true is not available yet");
  }
  return result;
}

struct Linear {
  const Parameter* weight = nullptr;
  const Parameter* bias = nullptr;
  at::Tensor operator()(const at::Tensor& input) const { return at::linear(input, value(*weight), value(*bias)); }
};

struct LayerNorm {
  const Parameter* weight = nullptr;
  const Parameter* bias = nullptr;
  double eps = 1e-12;
  at::Tensor operator()(const at::Tensor& input) const {
    return at::layer_norm(input, {input.size(-1)}, value(*weight), value(*bias), eps);
  }
};

struct Layer {
  Linear query, key, value, attention_output;
  LayerNorm attention_norm;
  Linear intermediate, output;
  LayerNorm output_norm;
};

// Adds parameters to the table and to the block that is being filled.
class Builder {
 public:
  explicit Builder(EncoderParts parts) : parts_(parts) {}

  void begin_block(std::string name, bool is_read_by_backward) {
    parts_.blocks.push_back({std::move(name), {}, is_read_by_backward});
  }

  const Parameter* add(std::string name, std::vector<int64_t> shape, bool has_weight_decay) {
    Parameter parameter;
    parameter.name = std::move(name);
    parameter.shape = std::move(shape);
    parameter.has_weight_decay = has_weight_decay;
    parts_.blocks.back().parameters.push_back(static_cast<int64_t>(parts_.parameters.size()));
    parts_.parameters.push_back(std::move(parameter));
    return &parts_.parameters.back();
  }

  Linear linear(const std::string& name, int64_t in, int64_t out) {
    const Parameter* weight = add(name + ".weight", {out, in}, true);
    return {weight, add(name + ".bias", {out}, false)};
  }

  LayerNorm layer_norm(const std::string& name, int64_t width, double eps) {
    const Parameter* weight = add(name + ".weight", {width}, false);
    return {weight, add(name + ".bias", {width}, false), eps};
  }

 private:
  EncoderParts parts_;
};

class Bert final : public Encoder {
 public:
  Bert(const BertConfig& config, EncoderParts parts) : config_(config), parts_(parts) {
    Builder builder(parts);
    const int64_t hidden = config.hidden_size;
    builder.begin_block("embeddings", false);
    word_ = builder.add("embeddings.word_embeddings.weight", {config.vocab_size, hidden}, true);
    position_ = builder.add("embeddings.position_embeddings.weight", {config.max_positions, hidden}, true);
    token_type_ = builder.add("embeddings.token_type_embeddings.weight", {config.type_vocab_size, hidden}, true);
    for (int64_t i = 0; i < config.layers; ++i) {
      const std::string name = fmt::format("encoder.layer.{}", i);
      builder.begin_block(name, true);
      if (i == 0) {
        // The norm of the embeddings belongs to the first layer's block: its backward reads the weight, that of the
        // look-ups before it does not read the tables.
        embedding_norm_ = builder.layer_norm("embeddings.LayerNorm", hidden, config.layer_norm_eps);
      }
      layers_.push_back(build_layer(builder, name));
    }
  }

  int64_t hidden_size() const override { return config_.hidden_size; }
  int64_t max_positions() const override { return config_.max_positions; }
  int64_t vocab_size() const override { return config_.vocab_size; }

  at::Tensor forward(const TokenBatch& batch, const ForwardContext& context) const override {
    // A recomputed layer outlives the caller's batch.
    const auto kept = std::make_shared<const TokenBatch>(batch);
    auto hidden_TD = run_block(context, {0}, {}, [&](const at::Tensor&) {
      return at::embedding(value(*word_), batch.token_ids_T) + at::embedding(value(*position_), batch.position_T) +
             value(*token_type_).select(0, 0);
    });
    for (size_t i = 0; i < layers_.size(); ++i) {
      const auto block = static_cast<int64_t>(i) + 1;
      const BlockRef ref{block, has_trainable(parts_, block), true};
      hidden_TD = run_block(context, ref, std::move(hidden_TD), [this, i, kept, context](const at::Tensor& input_TD) {
        const auto embedded_TD = i == 0 ? drop(embedding_norm_(input_TD), *kept, context, 0, 1) : input_TD;
        return forward_layer(layers_[i], embedded_TD, *kept, context, static_cast<uint32_t>(i) + 1);
      });
    }
    return hidden_TD;
  }

 private:
  Layer build_layer(Builder& builder, const std::string& name) const {
    const int64_t hidden = config_.hidden_size;
    const double eps = config_.layer_norm_eps;
    Layer layer;
    layer.query = builder.linear(name + ".attention.self.query", hidden, hidden);
    layer.key = builder.linear(name + ".attention.self.key", hidden, hidden);
    layer.value = builder.linear(name + ".attention.self.value", hidden, hidden);
    layer.attention_output = builder.linear(name + ".attention.output.dense", hidden, hidden);
    layer.attention_norm = builder.layer_norm(name + ".attention.output.LayerNorm", hidden, eps);
    layer.intermediate = builder.linear(name + ".intermediate.dense", hidden, config_.intermediate_size);
    layer.output = builder.linear(name + ".output.dense", config_.intermediate_size, hidden);
    layer.output_norm = builder.layer_norm(name + ".output.LayerNorm", hidden, eps);
    return layer;
  }

  at::Tensor drop(const at::Tensor& input_TD, const TokenBatch& batch, const ForwardContext& context, uint32_t layer,
                  uint32_t site) const {
    if (!context.dropout || config_.hidden_dropout == 0) {
      return input_TD;
    }
    const auto scale =
        token_dropout_scale(batch, *context.dropout, input_TD.size(1), layer, site, config_.hidden_dropout);
    // 1 / (1 - p) has no bf16: the product is fp32 and rounded once.
    return (input_TD * scale).to(input_TD.scalar_type());
  }

  at::Tensor activate(const at::Tensor& input) const {
    if (config_.activation_is_relu) {
      return at::relu(input);
    }
    return at::gelu(input, config_.gelu_is_tanh ? "tanh" : "none");
  }

  at::Tensor forward_layer(const Layer& layer, const at::Tensor& input_TD, const TokenBatch& batch,
                           const ForwardContext& context, uint32_t number) const {
    const AttentionPlan plan{config_.heads, number, config_.attention_dropout};
    auto attended_TD = attend(layer.query(input_TD), layer.key(input_TD), layer.value(input_TD), batch, context, plan);
    attended_TD = drop(layer.attention_output(attended_TD), batch, context, number, 1);
    const auto middle_TD = layer.attention_norm(attended_TD + input_TD);
    auto output_TD = layer.output(activate(layer.intermediate(middle_TD)));
    output_TD = drop(output_TD, batch, context, number, 2);
    return layer.output_norm(output_TD + middle_TD);
  }

  BertConfig config_;
  EncoderParts parts_;
  const Parameter* word_ = nullptr;
  const Parameter* position_ = nullptr;
  const Parameter* token_type_ = nullptr;
  LayerNorm embedding_norm_;
  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<Encoder> build_bert(const io::Json& config, const std::string& origin, std::optional<double> dropout,
                                    EncoderParts parts) {
  return std::make_unique<Bert>(read_config(config, origin, dropout), parts);
}

std::unique_ptr<Encoder> build_encoder(const io::Json& config, const std::string& origin, std::optional<double> dropout,
                                       EncoderParts parts) {
  const std::string family = io::get_string(config, "model_type", origin);
  if (family == "bert") {
    return build_bert(config, origin, dropout, parts);
  }
  throw UserError(fmt::format("{}: model_type '{}' is not available yet (bert is)", origin, family));
}

}  // namespace stft::model
