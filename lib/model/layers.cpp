#include "model/layers.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/error.h"

namespace stft::model {
namespace {

std::optional<at::Tensor> optional_value(const Parameter* parameter) {
  return parameter != nullptr ? std::optional<at::Tensor>(value(*parameter)) : std::nullopt;
}

// What a projection computes with: the one place that reads its weight.
const at::Tensor& base_weight(const Projection& projection) {
  return value(*projection.weight);
}

// m / n of DoRA, [out] in fp32; the gradient goes to m only.
at::Tensor magnitude_ratio(const at::Tensor& weight, const LowRankBranch& branch) {
  at::Tensor norm;
  {
    const at::NoGradGuard constant;
    const auto delta = at::matmul(value(*branch.up).to(at::kFloat), value(*branch.down).to(at::kFloat)) * branch.scale;
    norm = (weight.to(at::kFloat) + delta).norm(2, {1});
  }
  return value(*branch.magnitude).to(at::kFloat) / norm;
}

// `dropped`: the branch's input, when it is another than the projection's.
at::Tensor project(const Projection& projection, const at::Tensor& input, const std::optional<at::Tensor>& dropped) {
  const at::Tensor& weight = base_weight(projection);
  if (!projection.branch) {
    return at::linear(input, weight, optional_value(projection.bias));
  }
  const LowRankBranch& branch = *projection.branch;
  const at::Tensor& low_input = dropped ? *dropped : input;
  const auto added =
      at::linear(at::linear(low_input, value(*branch.down)), value(*branch.up), optional_value(branch.up_bias)) *
      branch.scale;
  if (branch.magnitude == nullptr) {
    return at::linear(input, weight, optional_value(projection.bias)) + added;
  }
  const auto ratio = magnitude_ratio(weight, branch).to(input.scalar_type());
  const auto plain = at::linear(input, weight);
  // What DoRA changes of W x sees the dropout too, W x itself does not.
  auto output = dropped ? plain + (ratio - 1) * at::linear(*dropped, weight) : ratio * plain;
  output = output + ratio * added;
  return projection.bias != nullptr ? output + value(*projection.bias) : output;
}

}  // namespace

at::Tensor Embedding::operator()(const at::Tensor& row_T) const {
  const auto plain = at::embedding(value(*table->weight), row_T, padding.value_or(-1));
  if (!table->branch) {
    return plain;
  }
  const LowRankBranch& branch = *table->branch;
  const auto low_TR = at::embedding(value(*branch.down).t(), row_T, padding.value_or(-1));
  return plain + at::linear(low_TR, value(*branch.up)) * branch.scale;
}

at::Tensor Linear::operator()(const at::Tensor& input, const LayerPass& pass) const {
  const bool drops = projection->branch && projection->branch->dropout > 0 && pass.context.dropout;
  if (!drops) {
    return project(*projection, input, std::nullopt);
  }
  return project(*projection, input,
                 drop_tokens(input, pass.batch, pass.context,
                             {pass.layer, projection->dropout_site, projection->branch->dropout}));
}

at::Tensor Linear::without_dropout(const at::Tensor& input) const {
  return project(*projection, input, std::nullopt);
}

at::Tensor LayerNorm::operator()(const at::Tensor& input) const {
  return at::layer_norm(input, {input.size(-1)}, value(*weight), optional_value(bias), eps);
}

at::Tensor RmsNorm::operator()(const at::Tensor& input) const {
  const auto& scale = value(*weight);
  if (!adds_one) {
    return at::rms_norm(input, {input.size(-1)}, scale, eps);
  }
  // In bf16 the sum would lose most of a weight near 0.
  return at::rms_norm(input.to(at::kFloat), {input.size(-1)}, scale.to(at::kFloat) + 1, eps).to(input.scalar_type());
}

Activation read_activation(const FamilyConfig& config, const std::string& key, const std::string& or_else) {
  const std::string name = config.text(key, or_else);
  if (name == "gelu") {
    return Activation::kGelu;
  }
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") {
    return Activation::kGeluTanh;
  }
  if (name == "relu") {
    return Activation::kRelu;
  }
  if (name == "silu" || name == "swish") {
    return Activation::kSilu;
  }
  throw UserError(fmt::format("{}: {} '{}' is not available yet (gelu, gelu_new, gelu_pytorch_tanh, relu, silu are)",
                              config.origin(), key, name));
}

at::Tensor activate(Activation activation, const at::Tensor& input) {
  switch (activation) {
    case Activation::kGelu:
      return at::gelu(input, "none");
    case Activation::kGeluTanh:
      return at::gelu(input, "tanh");
    case Activation::kRelu:
      return at::relu(input);
    case Activation::kSilu:
      return at::silu(input);
  }
  throw_internal("known activation", "");
}

at::Tensor GatedMlp::operator()(const at::Tensor& input, const LayerPass& pass) const {
  return down(activate(activation, gate(input, pass)) * up(input, pass), pass);
}

at::Tensor drop_tokens(const at::Tensor& input_TD, const TokenBatch& batch, const ForwardContext& context,
                       const DropoutSite& site) {
  if (!context.dropout || site.probability == 0) {
    return input_TD;
  }
  const auto scale =
      token_dropout_scale(batch, *context.dropout, input_TD.size(1), site.layer, site.site, site.probability);
  // 1 / (1 - p) has no bf16: the product is fp32 and rounded once.
  return (input_TD * scale).to(input_TD.scalar_type());
}

void BlockBuilder::begin_block(std::string name, bool is_read_by_backward) {
  parts_.blocks.push_back({std::move(name), {}, is_read_by_backward});
  projections_in_block_ = 0;
}

const Parameter* BlockBuilder::add(std::string name, std::vector<int64_t> shape, bool has_weight_decay) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.shape = std::move(shape);
  parameter.has_weight_decay = has_weight_decay;
  parts_.blocks.back().parameters.push_back(static_cast<int64_t>(parts_.parameters.size()));
  parts_.parameters.push_back(std::move(parameter));
  return &parts_.parameters.back();
}

const Parameter* BlockBuilder::add_table(const std::string& name, int64_t rows, int64_t width) {
  const Parameter* table = add(name + ".weight", {rows, width}, true);
  parts_.parameters.back().is_table = true;
  return table;
}

Linear BlockBuilder::linear(const std::string& name, int64_t in, int64_t out, bool has_bias) {
  constexpr uint32_t kSites = 16;  // that a layer's dropout has room for
  Projection projection;
  projection.name = name;
  projection.block = static_cast<int64_t>(parts_.blocks.size()) - 1;
  projection.in = in;
  projection.out = out;
  projection.weight = add(name + ".weight", {out, in}, true);
  projection.bias = has_bias ? add(name + ".bias", {out}, false) : nullptr;
  projection.dropout_site = kFirstBranchSite + projections_in_block_++;
  STFT_CHECK(projection.dropout_site < kSites, "a block has no more projections than dropout sites");
  parts_.projections.push_back(std::move(projection));
  return {&parts_.projections.back()};
}

Linear BlockBuilder::whole_linear(const std::string& name, int64_t in, int64_t out) {
  const Linear result = linear(name, in, out, false);
  parts_.projections.back().stays_whole = true;
  return result;
}

Embedding BlockBuilder::embedding(const std::string& name, int64_t rows, int64_t width,
                                  std::optional<int64_t> padding) {
  Projection table;
  table.name = name;
  table.block = static_cast<int64_t>(parts_.blocks.size()) - 1;
  table.in = rows;
  table.out = width;
  table.is_table = true;
  table.weight = add_table(name, rows, width);
  parts_.projections.push_back(std::move(table));
  return {&parts_.projections.back(), padding};
}

LayerNorm BlockBuilder::layer_norm(const std::string& name, int64_t width, double eps, bool has_bias) {
  const Parameter* weight = add(name + ".weight", {width}, false);
  return {weight, has_bias ? add(name + ".bias", {width}, false) : nullptr, eps};
}

RmsNorm BlockBuilder::rms_norm(const std::string& name, int64_t width, double eps, bool adds_one) {
  return {add(name + ".weight", {width}, false), eps, adds_one};
}

}  // namespace stft::model
