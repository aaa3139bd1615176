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

}  // namespace

at::Tensor Embedding::operator()(const at::Tensor& row_T) const {
  return at::embedding(value(*table), row_T, padding.value_or(-1));
}

at::Tensor Linear::operator()(const at::Tensor& input) const {
  return at::linear(input, value(*weight), optional_value(bias));
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

at::Tensor GatedMlp::operator()(const at::Tensor& input) const {
  return down(activate(activation, gate(input)) * up(input));
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

Linear BlockBuilder::linear(const std::string& name, int64_t in, int64_t out, bool has_bias) {
  const Parameter* weight = add(name + ".weight", {out, in}, true);
  return {weight, has_bias ? add(name + ".bias", {out}, false) : nullptr};
}

LayerNorm BlockBuilder::layer_norm(const std::string& name, int64_t width, double eps, bool has_bias) {
  const Parameter* weight = add(name + ".weight", {width}, false);
  return {weight, has_bias ? add(name + ".bias", {width}, false) : nullptr, eps};
}

RmsNorm BlockBuilder::rms_norm(const std::string& name, int64_t width, double eps, bool adds_one) {
  return {add(name + ".weight", {width}, false), eps, adds_one};
}

}  // namespace stft::model
