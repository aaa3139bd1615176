// What the families are built of: parameters, projections, norms, activations, dropout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/encoder.h"
#include "model/family_config.h"

namespace stft::model {

// Rows of a table of tokens or positions.
struct Embedding {
  const Projection* table = nullptr;              // null: the family has none here
  std::optional<int64_t> padding = std::nullopt;  // the row that gets no gradient
  bool exists() const { return table != nullptr; }
  at::Tensor operator()(const at::Tensor& row_T) const;
};

// The forward pass that a projection takes part in: whose tokens its input holds, and the layer's number, which keys
// the dropout of adapters (0: the embeddings).
struct LayerPass {
  const TokenBatch& batch;
  const ForwardContext& context;
  uint32_t layer = 0;
};

struct Linear {
  const Projection* projection = nullptr;  // null: the family has none here

  bool exists() const { return projection != nullptr; }
  // `input` [T, in] in the batch's layout.
  at::Tensor operator()(const at::Tensor& input, const LayerPass& pass) const;
  // The same for rows that are no tokens of texts, which adapters do not drop.
  at::Tensor without_dropout(const at::Tensor& input) const;
};

// Ba et al., "Layer Normalization", 2016.
struct LayerNorm {
  const Parameter* weight = nullptr;
  const Parameter* bias = nullptr;  // null: none
  double eps = 1e-12;
  at::Tensor operator()(const at::Tensor& input) const;
};

// Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, over the last dimension.
struct RmsNorm {
  const Parameter* weight = nullptr;
  double eps = 1e-6;
  bool adds_one = false;  // scales by 1 + weight
  at::Tensor operator()(const at::Tensor& input) const;
};

enum class Activation { kGelu, kGeluTanh, kRelu, kSilu };

// The value of `key` by transformers' names; UserError naming those that are available.
Activation read_activation(const FamilyConfig& config, const std::string& key, const std::string& or_else);
at::Tensor activate(Activation activation, const at::Tensor& input);

// down(act(gate(x)) * up(x)) (Shazeer, "GLU Variants Improve Transformer", 2020).
struct GatedMlp {
  Linear gate, up, down;
  Activation activation = Activation::kSilu;
  at::Tensor operator()(const at::Tensor& input, const LayerPass& pass) const;
};

// Where dropout of token vectors happens.
struct DropoutSite {
  uint32_t layer = 0;  // 0: the embeddings
  uint32_t site = 1;   // from 1 on; 0 is the attention's; from kFirstBranchSite on the adapters'
  double probability = 0.0;
};

// `input` [T, D] with the context's dropout, if any.
at::Tensor drop_tokens(const at::Tensor& input_TD, const TokenBatch& batch, const ForwardContext& context,
                       const DropoutSite& site);

// Sites below are the families' own.
inline constexpr uint32_t kFirstBranchSite = 4;

// Adds parameters to the table and to the block that is being filled.
class BlockBuilder {
 public:
  explicit BlockBuilder(EncoderParts parts) : parts_(parts) {}

  void begin_block(std::string name, bool is_read_by_backward);
  const Parameter* add(std::string name, std::vector<int64_t> shape, bool has_weight_decay);
  // `name`.weight [rows, width], whose rows are looked up.
  const Parameter* add_table(const std::string& name, int64_t rows, int64_t width);
  // `name`.weight [out, in] and, if asked for, `name`.bias.
  Linear linear(const std::string& name, int64_t in, int64_t out, bool has_bias = true);
  // The same without bias, for one that is never quantized.
  Linear whole_linear(const std::string& name, int64_t in, int64_t out);
  // `name`.weight [rows, width].
  Embedding embedding(const std::string& name, int64_t rows, int64_t width, std::optional<int64_t> padding);
  LayerNorm layer_norm(const std::string& name, int64_t width, double eps, bool has_bias = true);
  RmsNorm rms_norm(const std::string& name, int64_t width, double eps, bool adds_one = false);

 private:
  EncoderParts parts_;
  uint32_t projections_in_block_ = 0;
};

}  // namespace stft::model
