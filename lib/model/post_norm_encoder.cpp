#include "model/post_norm_encoder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/error.h"
#include "model/attention.h"
#include "model/run_block.h"
#include "model/side_tensor.h"

// Shape suffixes: T tokens, D hidden width.

namespace stft::model {
namespace {

struct Layer {
  Linear query, key, value, attention_output;
  LayerNorm attention_norm;
  Linear gate, intermediate, output;
  LayerNorm output_norm;
};

// What the layers of one forward pass share; a recomputed layer outlives the caller's batch.
struct Shared {
  TokenBatch batch;
  std::optional<RopeAngles> angles;
  ScoreBias bias = nullptr;
};

bool is_given(const char* name) {
  return *name != '\0';
}

// Of each token the row of the table of positions.
at::Tensor counted_positions(const TokenBatch& batch, int64_t padding_index) {
  auto result = at::full_like(batch.position_T, padding_index);
  const auto* id = batch.token_ids_T.data_ptr<int64_t>();
  auto* position = result.data_ptr<int64_t>();
  const int64_t stride = batch.layout == Layout::kPadded ? batch.buckets.front().length : 0;
  for (const int64_t length : batch.lengths) {
    int64_t next = padding_index + 1;
    for (int64_t t = 0; t < length; ++t) {
      position[t] = id[t] == padding_index ? padding_index : next++;
    }
    id += stride > 0 ? stride : length;
    position += stride > 0 ? stride : length;
  }
  return result;
}

class PostNormEncoder final : public Encoder {
 public:
  PostNormEncoder(PostNormConfig config, EncoderParts parts) : config_(std::move(config)), parts_(parts) {
    BlockBuilder builder(parts);
    const PostNormNames& names = config_.names;
    builder.begin_block("embeddings", false);
    word_ = builder.embedding(names.word, config_.vocab_size, config_.embedding_size, config_.padding_token);
    if (is_given(names.position)) {
      position_ = builder.embedding(names.position, config_.position_rows, config_.embedding_size,
                                    config_.counts_from_padding ? config_.padding_token : std::nullopt);
    }
    if (is_given(names.token_type)) {
      token_type_ = builder.add_table(names.token_type, config_.type_vocab_size, config_.embedding_size);
    }
    if (is_given(names.relative_bias)) {
      relative_bias_ = builder.add(names.relative_bias, {config_.relative->buckets, config_.heads}, false);
    }
    for (int64_t i = 0; i < config_.layers; ++i) {
      const std::string name = names.layer + std::to_string(i);
      builder.begin_block(name, true);
      if (i == 0) {
        // The norm of the embeddings belongs to the first layer's block: its backward reads the weight, that of the
        // look-ups before it does not read the tables.
        embedding_norm_ = builder.layer_norm(names.embedding_norm, config_.embedding_size, config_.norm_eps);
        if (is_given(names.embedding_projection)) {
          embedding_projection_ =
              builder.linear(names.embedding_projection, config_.embedding_size, config_.hidden_size);
        }
      }
      layers_.push_back(build_layer(builder, name + names.in_layer));
    }
  }

  int64_t hidden_size() const override { return config_.hidden_size; }
  int64_t max_positions() const override { return config_.max_positions(); }
  int64_t vocab_size() const override { return config_.vocab_size; }
  std::string weight_prefix() const override { return config_.names.prefix; }
  std::vector<PublishedName> published_names() const override { return config_.published_names; }

  at::Tensor forward(const TokenBatch& batch, const ForwardContext& context) const override {
    const auto shared = std::make_shared<Shared>(Shared{batch, std::nullopt, nullptr});
    if (config_.rope) {
      shared->angles = config_.rope->angles(batch);
    }
    auto hidden_TD = run_block(context, {0}, {}, [&](const at::Tensor&) { return embed(batch, *shared); });
    return run_layers(context, parts_, {1, layers_.size()}, std::move(hidden_TD),
                      [this, shared, context](size_t i, const at::Tensor& input_TD) {
                        auto output_TD = i == 0 ? finish_embedding(input_TD, *shared, context) : input_TD;
                        for (int64_t run = 0; run < config_.repeats; ++run) {
                          const auto number =
                              static_cast<uint32_t>(static_cast<int64_t>(i) * config_.repeats + run) + 1;
                          output_TD = forward_layer(layers_[i], output_TD, *shared, context, number);
                        }
                        return output_TD;
                      });
  }

 private:
  Layer build_layer(BlockBuilder& builder, const std::string& prefix) const {
    const PostNormNames& names = config_.names;
    const int64_t hidden = config_.hidden_size;
    const int64_t intermediate = config_.intermediate_size;
    const auto linear = [&](const char* name, int64_t in, int64_t out, bool has_bias = true) {
      return builder.linear(prefix + name, in, out, config_.has_bias && has_bias);
    };
    Layer layer;
    layer.query = linear(names.query, hidden, hidden);
    layer.key = linear(names.key, hidden, hidden);
    layer.value = linear(names.value, hidden, hidden);
    layer.attention_output = linear(names.attention_output, hidden, hidden);
    layer.attention_norm = builder.layer_norm(prefix + names.attention_norm, hidden, config_.norm_eps);
    if (is_given(names.gate)) {
      layer.gate = linear(names.gate, hidden, intermediate, config_.widening_has_bias);
    }
    layer.intermediate = linear(names.intermediate, hidden, intermediate, config_.widening_has_bias);
    layer.output = linear(names.output, intermediate, hidden);
    layer.output_norm = builder.layer_norm(prefix + names.output_norm, hidden, config_.norm_eps);
    return layer;
  }

  at::Tensor embed(const TokenBatch& batch, Shared& shared) const {
    auto sum_TD = word_(batch.token_ids_T);
    if (position_.exists()) {
      sum_TD = sum_TD + position_(config_.counts_from_padding ? counted_positions(batch, *config_.padding_token)
                                                              : batch.position_T);
    }
    if (token_type_ != nullptr) {
      sum_TD = sum_TD + value(*token_type_).select(0, 0);
    }
    if (relative_bias_ == nullptr) {
      return sum_TD;
    }
    const int64_t longest = batch.buckets.back().length;
    auto [output_TD, rows] = with_side(sum_TD, relative_bias_rows(value(*relative_bias_), *config_.relative, longest));
    shared.bias = relative_score_bias(std::move(rows));
    return output_TD;
  }

  at::Tensor finish_embedding(const at::Tensor& sum_TD, const Shared& shared, const ForwardContext& context) const {
    const auto dropped_TD = drop_tokens(embedding_norm_(sum_TD), shared.batch, context, {0, 1, config_.hidden_dropout});
    return embedding_projection_.exists() ? embedding_projection_(dropped_TD, {shared.batch, context, 0}) : dropped_TD;
  }

  at::Tensor forward_attention(const Layer& layer, const at::Tensor& input_TD, const Shared& shared,
                               const ForwardContext& context, uint32_t number) const {
    AttentionPlan plan;
    plan.heads = config_.heads;
    plan.layer = number;
    plan.dropout = config_.attention_dropout;
    plan.bias = shared.bias;
    const LayerPass pass{shared.batch, context, number};
    auto query_TD = layer.query(input_TD, pass);
    auto key_TD = layer.key(input_TD, pass);
    if (shared.angles) {
      query_TD = rotate(query_TD, *shared.angles);
      key_TD = rotate(key_TD, *shared.angles);
    }
    return layer.attention_output(attend(query_TD, key_TD, layer.value(input_TD, pass), shared.batch, context, plan),
                                  pass);
  }

  at::Tensor forward_layer(const Layer& layer, const at::Tensor& input_TD, const Shared& shared,
                           const ForwardContext& context, uint32_t number) const {
    auto attended_TD = forward_attention(layer, input_TD, shared, context, number);
    if (config_.drops_attention_output) {
      attended_TD = drop_tokens(attended_TD, shared.batch, context, {number, 1, config_.hidden_dropout});
    }
    const auto middle_TD = layer.attention_norm(attended_TD + input_TD);
    const LayerPass pass{shared.batch, context, number};
    auto inner_TD =
        activate(config_.activation, (layer.gate.exists() ? layer.gate : layer.intermediate)(middle_TD, pass));
    if (layer.gate.exists()) {
      inner_TD = inner_TD * layer.intermediate(middle_TD, pass);
    }
    if (config_.drops_inner) {
      inner_TD = drop_tokens(inner_TD, shared.batch, context, {number, 3, config_.hidden_dropout});
    }
    auto output_TD = layer.output(inner_TD, pass);
    if (config_.drops_output) {
      output_TD = drop_tokens(output_TD, shared.batch, context, {number, 2, config_.hidden_dropout});
    }
    return layer.output_norm(output_TD + middle_TD);
  }

  PostNormConfig config_;
  EncoderParts parts_;
  Embedding word_, position_;
  const Parameter* token_type_ = nullptr;
  const Parameter* relative_bias_ = nullptr;
  LayerNorm embedding_norm_;
  Linear embedding_projection_;
  std::vector<Layer> layers_;
};

}  // namespace

PostNormConfig read_post_norm_config(const FamilyConfig& config, const EncoderInput& input, const char* positions) {
  PostNormConfig result;
  result.vocab_size = config.positive("vocab_size");
  result.hidden_size = config.positive("hidden_size");
  result.embedding_size = result.hidden_size;
  result.layers = config.layers();
  result.heads = config.positive("num_attention_heads");
  result.intermediate_size = config.positive("intermediate_size");
  result.position_rows = config.positive("max_position_embeddings");
  config.require_multiple("hidden_size", result.hidden_size, "num_attention_heads", result.heads);
  result.padding_token = config.padding_token(result.vocab_size, 0);
  result.norm_eps = config.epsilon("layer_norm_eps", 1e-12);
  result.hidden_dropout = input.dropout.value_or(config.probability("hidden_dropout_prob", 0.1));
  result.attention_dropout = input.dropout.value_or(config.probability("attention_probs_dropout_prob", 0.1));
  result.activation = read_activation(config, "hidden_act", "gelu");
  config.require_text("position_embedding_type", positions);
  config.require_flag("is_decoder", false);
  return result;
}

void take_rotary_gated_names(PostNormNames& names) {
  names.position = "";
  names.layer = "layers.";
  names.query = "self_attn.q_proj";
  names.key = "self_attn.k_proj";
  names.value = "self_attn.v_proj";
  names.attention_output = "self_attn.o_proj";
  names.attention_norm = "post_attention_layernorm";
  names.gate = "mlp.gate_proj";
  names.intermediate = "mlp.up_proj";
  names.output = "mlp.down_proj";
  names.output_norm = "post_mlp_layernorm";
}

void require_room_for_positions(const FamilyConfig& config, const PostNormConfig& result) {
  if (result.max_positions() < 1) {
    config.refuse("max_position_embeddings", fmt::format("{} leave no position behind the padding token {}",
                                                         result.position_rows, *result.padding_token));
  }
}

std::unique_ptr<Encoder> build_post_norm_encoder(PostNormConfig config, EncoderParts parts) {
  STFT_CHECK(config.max_positions() > 0, "the table of positions has room for a token");
  return std::make_unique<PostNormEncoder>(std::move(config), parts);
}

}  // namespace stft::model
