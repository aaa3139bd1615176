// DeBERTa-v2 and v3 (He et al., "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", 2021): BERT whose scores
// have terms of content and relative position (eq. 4).
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/attention.h"
#include "model/families.h"
#include "model/layers.h"
#include "model/run_block.h"
#include "model/side_tensor.h"

// Shape suffixes: T tokens, D hidden width, P rows of the table of relative positions, B texts, H heads, L length,
// E head width.

namespace stft::model {
namespace {

// The position table's dropout is no text's own.
constexpr uint32_t kNoText = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kPositionSite = 3;

struct Config {
  int64_t vocab_size = 0;
  int64_t embedding_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t max_positions = 0;
  int64_t type_vocab_size = 0;
  std::optional<int64_t> padding_token;
  double norm_eps = 1e-7;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  Activation activation = Activation::kGelu;
  bool has_absolute_positions = true;
  bool has_relative_positions = false;
  bool normalizes_positions = false;
  bool shares_projections = false;  // positions are projected as tokens are
  bool has_content_to_position = false;
  bool has_position_to_content = false;
  int64_t buckets = -1;       // of distances, in either direction; none: every distance has its own
  int64_t max_distance = -1;  // that is told apart

  int64_t span() const { return buckets > 0 ? buckets : max_distance; }
  double score_scale() const {
    const int64_t terms = 1 + (has_content_to_position ? 1 : 0) + (has_position_to_content ? 1 : 0);
    return 1.0 / std::sqrt(static_cast<double>(hidden_size / heads * terms));
  }
};

// "c2p|p2c", or a list of such names.
std::string joined_names(const FamilyConfig& config, const std::string& key) {
  const auto found = config.json().find(key);
  if (found == config.json().end() || found->is_null()) {
    return "";
  }
  if (found->is_string()) {
    return found->get<std::string>();
  }
  std::string names;
  for (const io::Json& name : found->is_array() ? *found : io::Json::array({*found})) {
    if (!name.is_string()) {
      config.refuse(key, "expected names, found " + io::json_type_name(name));
    }
    names += name.get<std::string>() + "|";
  }
  return names;
}

Config read_config(const FamilyConfig& config, const EncoderInput& input) {
  Config result;
  result.vocab_size = config.positive("vocab_size");
  result.hidden_size = config.positive("hidden_size");
  result.embedding_size = config.positive("embedding_size", result.hidden_size);
  result.intermediate_size = config.positive("intermediate_size");
  result.layers = config.layers();
  result.heads = config.positive("num_attention_heads");
  config.require_multiple("hidden_size", result.hidden_size, "num_attention_heads", result.heads);
  if (config.positive("attention_head_size", result.hidden_size / result.heads) != result.hidden_size / result.heads) {
    config.refuse("attention_head_size", "other than hidden_size / num_attention_heads is not available yet");
  }
  result.max_positions = config.positive("max_position_embeddings");
  result.type_vocab_size = config.index("type_vocab_size", 0);
  result.padding_token = config.padding_token(result.vocab_size, 0);
  result.norm_eps = config.epsilon("layer_norm_eps", 1e-7);
  result.hidden_dropout = input.dropout.value_or(config.probability("hidden_dropout_prob", 0.1));
  result.attention_dropout = input.dropout.value_or(config.probability("attention_probs_dropout_prob", 0.1));
  result.activation = read_activation(config, "hidden_act", "gelu");
  result.has_absolute_positions = config.flag("position_biased_input", true);
  if (config.index("conv_kernel_size", 0) > 0) {
    config.refuse("conv_kernel_size", "a convolution is not available yet");
  }
  const std::string terms = joined_names(config, "pos_att_type");
  result.has_content_to_position = terms.find("c2p") != std::string::npos;
  result.has_position_to_content = terms.find("p2c") != std::string::npos;
  result.has_relative_positions = config.flag("relative_attention", false);
  if (result.has_relative_positions) {
    const auto limit = [&](const char* key) {
      const int64_t value = io::optional_int(config.json(), key, config.origin()).value_or(-1);
      return value < 1 ? int64_t{-1} : config.positive(key);
    };
    result.shares_projections = config.flag("share_att_key", false);
    result.normalizes_positions = config.text("norm_rel_ebd", "none").find("layer_norm") != std::string::npos;
    result.buckets = limit("position_buckets");
    result.max_distance = limit("max_relative_positions");
    result.max_distance = result.max_distance < 1 ? result.max_positions : result.max_distance;
    if (result.buckets > 0 && (result.buckets < 4 || result.max_distance - 1 <= result.buckets / 2)) {
      config.refuse("position_buckets", "expected at least 4 and less than twice max_relative_positions");
    }
  }
  return result;
}

struct Layer {
  Linear query, key, value, attention_output;
  Linear position_key, position_query;  // without shares_projections
  LayerNorm attention_norm;
  Linear intermediate, output;
  LayerNorm output_norm;
};

// What the layers of one forward pass share; a recomputed layer outlives the caller's batch.
struct Shared {
  TokenBatch batch;
  at::Tensor positions_PD;  // rows [first_row, first_row + P) of the table, normalized
  int64_t first_row = 0;
};

// The row of every pair of query and key, [L, L], before it is cut to the table; as transformers computes it, in fp32.
at::Tensor relative_rows(int64_t length, const Config& config) {
  const auto position_L = at::arange(length);
  const auto distance_LL = position_L.unsqueeze(1) - position_L;
  if (config.buckets < 1) {
    return distance_LL;
  }
  const int64_t middle = config.buckets / 2;
  const auto is_near_LL = distance_LL.lt(middle).logical_and(distance_LL.gt(-middle));
  const auto away_LL = at::where(is_near_LL, at::full({}, middle - 1, at::kLong), distance_LL.abs());
  const auto steps =
      at::log(at::full({}, static_cast<double>(config.max_distance - 1) / static_cast<double>(middle), at::kFloat));
  const auto far_LL =
      at::ceil(at::log(away_LL / static_cast<double>(middle)) / steps * static_cast<double>(middle - 1)) + middle;
  return at::where(away_LL.le(middle), distance_LL.to(at::kFloat), far_LL * distance_LL.sign()).to(at::kLong);
}

class Deberta final : public Encoder {
 public:
  Deberta(const Config& config, EncoderParts parts) : config_(config), parts_(parts) {
    BlockBuilder builder(parts);
    const int64_t hidden = config.hidden_size;
    builder.begin_block("embeddings", false);
    word_ =
        builder.embedding("embeddings.word_embeddings", config.vocab_size, config.embedding_size, config.padding_token);
    if (config.has_absolute_positions) {
      position_ = builder.embedding("embeddings.position_embeddings", config.max_positions, config.embedding_size,
                                    std::nullopt);
    }
    if (config.type_vocab_size > 0) {
      token_type_ =
          builder.add_table("embeddings.token_type_embeddings", config.type_vocab_size, config.embedding_size);
    }
    if (config.has_relative_positions) {
      builder.begin_block("encoder.rel_embeddings", true);
      relative_ = builder.add_table("encoder.rel_embeddings", 2 * config.span(), hidden);
      if (config.normalizes_positions) {
        relative_norm_ = builder.layer_norm("encoder.LayerNorm", hidden, config.norm_eps);
      }
    }
    for (int64_t i = 0; i < config.layers; ++i) {
      const std::string name = fmt::format("encoder.layer.{}", i);
      builder.begin_block(name, true);
      if (i == 0) {
        if (config.embedding_size != hidden) {
          embedding_projection_ = builder.linear("embeddings.embed_proj", config.embedding_size, hidden, false);
        }
        embedding_norm_ = builder.layer_norm("embeddings.LayerNorm", hidden, config.norm_eps);
      }
      layers_.push_back(build_layer(builder, name));
    }
  }

  int64_t hidden_size() const override { return config_.hidden_size; }
  int64_t max_positions() const override { return config_.max_positions; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  std::string weight_prefix() const override { return "deberta."; }

  at::Tensor forward(const TokenBatch& batch, const ForwardContext& context) const override {
    const auto shared = std::make_shared<Shared>(Shared{batch});
    auto hidden_TD = run_block(context, {0}, {}, [&](const at::Tensor&) { return embed(batch); });
    int64_t block = 1;
    if (config_.has_relative_positions) {
      hidden_TD = run_block(context, {block, has_trainable(parts_, block)}, std::move(hidden_TD),
                            [&](const at::Tensor& input_TD) { return add_positions(input_TD, *shared); });
      block += 1;
    }
    return run_layers(context, parts_, {block, layers_.size()}, std::move(hidden_TD),
                      [this, shared, context](size_t i, const at::Tensor& input_TD) {
                        const auto embedded_TD = i == 0 ? finish_embedding(input_TD, *shared, context) : input_TD;
                        return forward_layer(layers_[i], embedded_TD, *shared, context, static_cast<uint32_t>(i) + 1);
                      });
  }

 private:
  Layer build_layer(BlockBuilder& builder, const std::string& name) const {
    const int64_t hidden = config_.hidden_size;
    const std::string attention = name + ".attention.self.";
    Layer layer;
    layer.query = builder.linear(attention + "query_proj", hidden, hidden);
    layer.key = builder.linear(attention + "key_proj", hidden, hidden);
    layer.value = builder.linear(attention + "value_proj", hidden, hidden);
    if (config_.has_relative_positions && !config_.shares_projections) {
      if (config_.has_content_to_position) {
        layer.position_key = builder.linear(attention + "pos_key_proj", hidden, hidden);
      }
      if (config_.has_position_to_content) {
        layer.position_query = builder.linear(attention + "pos_query_proj", hidden, hidden);
      }
    } else {
      layer.position_key = layer.key;
      layer.position_query = layer.query;
    }
    layer.attention_output = builder.linear(name + ".attention.output.dense", hidden, hidden);
    layer.attention_norm = builder.layer_norm(name + ".attention.output.LayerNorm", hidden, config_.norm_eps);
    layer.intermediate = builder.linear(name + ".intermediate.dense", hidden, config_.intermediate_size);
    layer.output = builder.linear(name + ".output.dense", config_.intermediate_size, hidden);
    layer.output_norm = builder.layer_norm(name + ".output.LayerNorm", hidden, config_.norm_eps);
    return layer;
  }

  at::Tensor embed(const TokenBatch& batch) const {
    auto sum_TD = word_(batch.token_ids_T);
    if (position_.exists()) {
      sum_TD = sum_TD + position_(batch.position_T);
    }
    return token_type_ != nullptr ? sum_TD + value(*token_type_).select(0, 0) : sum_TD;
  }

  // The part of the table of relative positions that texts of the batch's lengths use.
  at::Tensor add_positions(const at::Tensor& input_TD, Shared& shared) const {
    const int64_t span = config_.span();
    const int64_t farthest = relative_rows(shared.batch.buckets.back().length, config_).max().item<int64_t>();
    shared.first_row = std::max<int64_t>(0, span - farthest);
    const int64_t rows = std::min(2 * span, span + farthest + 1) - shared.first_row;
    auto positions_PD = value(*relative_).narrow(0, shared.first_row, rows);
    positions_PD = config_.normalizes_positions ? relative_norm_(positions_PD) : positions_PD.clone();
    auto [output_TD, side_PD] = with_side(input_TD, positions_PD);
    shared.positions_PD = std::move(side_PD);
    return output_TD;
  }

  at::Tensor finish_embedding(const at::Tensor& sum_TD, const Shared& shared, const ForwardContext& context) const {
    const auto wide_TD =
        embedding_projection_.exists() ? embedding_projection_(sum_TD, {shared.batch, context, 0}) : sum_TD;
    return drop_tokens(embedding_norm_(wide_TD), shared.batch, context, {0, 1, config_.hidden_dropout});
  }

  at::Tensor drop_positions(const Shared& shared, const ForwardContext& context, uint32_t number) const {
    const at::Tensor& positions_PD = shared.positions_PD;
    if (!context.dropout || config_.hidden_dropout == 0) {
      return positions_PD;
    }
    const auto scale = at::empty({2 * config_.span(), config_.hidden_size}, at::kFloat);
    rng::fill_dropout_scale({scale.data_ptr<float>(), static_cast<size_t>(scale.numel())}, context.dropout->key,
                            {kNoText, kNoText, number, kPositionSite}, config_.hidden_dropout);
    return (positions_PD * scale.narrow(0, shared.first_row, positions_PD.size(0))).to(positions_PD.scalar_type());
  }

  // The terms of He et al., eq. 4, that are not content to content.
  ScoreBias position_terms(const Layer& layer, const Shared& shared, const ForwardContext& context,
                           uint32_t number) const {
    if (!config_.has_relative_positions || !(config_.has_content_to_position || config_.has_position_to_content)) {
      return nullptr;
    }
    const auto positions_PD = drop_positions(shared, context, number);
    const auto projected_HEP = [&](const Linear& projection) {
      return projection.without_dropout(positions_PD)
          .view({positions_PD.size(0), config_.heads, -1})
          .permute({1, 2, 0})
          .to(at::kFloat);
    };
    at::Tensor key_HEP, query_HEP;
    if (config_.has_content_to_position) {
      key_HEP = projected_HEP(layer.position_key);
    }
    if (config_.has_position_to_content) {
      query_HEP = projected_HEP(layer.position_query);
    }
    return [this, key_HEP, query_HEP, first_row = shared.first_row](const BucketHeads& heads) {
      const int64_t length = heads.query_BHLE.size(2);
      const auto relative_LL = relative_rows(length, config_);
      const auto term = [&](const at::Tensor& heads_BHLE, const at::Tensor& positions_HEP, const at::Tensor& row_LL) {
        const auto column_LL = row_LL.clamp(-config_.span(), config_.span() - 1) + (config_.span() - first_row);
        const auto all_BHLP = at::matmul(heads_BHLE.to(at::kFloat), positions_HEP) * config_.score_scale();
        return all_BHLP.gather(-1, column_LL.expand({all_BHLP.size(0), all_BHLP.size(1), length, length}));
      };
      at::Tensor sum_BHLL;
      if (key_HEP.defined()) {
        sum_BHLL = term(heads.query_BHLE, key_HEP, relative_LL);
      }
      if (query_HEP.defined()) {
        const auto behind_BHLL = term(heads.key_BHLE, query_HEP, -relative_LL).transpose(-1, -2);
        sum_BHLL = sum_BHLL.defined() ? sum_BHLL + behind_BHLL : behind_BHLL;
      }
      return sum_BHLL;
    };
  }

  at::Tensor forward_layer(const Layer& layer, const at::Tensor& input_TD, const Shared& shared,
                           const ForwardContext& context, uint32_t number) const {
    AttentionPlan plan;
    plan.heads = config_.heads;
    plan.layer = number;
    plan.dropout = config_.attention_dropout;
    plan.scale = config_.score_scale();
    plan.bias = position_terms(layer, shared, context, number);
    const auto drop = [&](const at::Tensor& tokens_TD, uint32_t site) {
      return drop_tokens(tokens_TD, shared.batch, context, {number, site, config_.hidden_dropout});
    };
    const LayerPass pass{shared.batch, context, number};
    const auto attended_TD = attend(layer.query(input_TD, pass), layer.key(input_TD, pass), layer.value(input_TD, pass),
                                    shared.batch, context, plan);
    const auto middle_TD = layer.attention_norm(drop(layer.attention_output(attended_TD, pass), 1) + input_TD);
    const auto inner = activate(config_.activation, layer.intermediate(middle_TD, pass));
    return layer.output_norm(drop(layer.output(inner, pass), 2) + middle_TD);
  }

  Config config_;
  EncoderParts parts_;
  Embedding word_, position_;
  const Parameter* token_type_ = nullptr;
  const Parameter* relative_ = nullptr;
  LayerNorm relative_norm_;
  Linear embedding_projection_;
  LayerNorm embedding_norm_;
  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<Encoder> build_deberta_v2(const EncoderInput& input) {
  return std::make_unique<Deberta>(read_config(FamilyConfig(input.config, input.origin), input), input.parts);
}

}  // namespace stft::model
