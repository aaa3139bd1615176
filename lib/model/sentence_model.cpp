#include "model/sentence_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/families.h"
#include "model/pooling.h"
#include "model/run_block.h"

namespace stft::model {
namespace {

at::Tensor apply_activation(DenseActivation activation, const at::Tensor& input) {
  switch (activation) {
    case DenseActivation::kTanh:
      return at::tanh(input);
    case DenseActivation::kIdentity:
      return input;
    case DenseActivation::kGelu:
      return at::gelu(input);
    case DenseActivation::kRelu:
      return at::relu(input);
    case DenseActivation::kSilu:
      return at::silu(input);
    case DenseActivation::kSigmoid:
      return at::sigmoid(input);
  }
  throw_internal("known activation", "");
}

}  // namespace

SentenceModel::SentenceModel(ModelSpec spec) : spec_(std::move(spec)) {
  const bool is_static = spec_.modules.front().kind == ModuleKind::kStaticEmbedding;
  const EncoderParts parts{parameters_, blocks_, projections_};
  encoder_ = is_static ? build_static_embedding(spec_.modules.front().table, parts)
                       : build_encoder({spec_.config, spec_.directory + "/config.json", spec_.dropout, parts});
  for (Parameter& parameter : parameters_) {
    parameter.state_path = spec_.state_path(0);
  }
  for (size_t i = 0; i < spec_.modules.size(); ++i) {
    if (spec_.modules[i].kind == ModuleKind::kDense) {
      add_dense(spec_.modules[i], static_cast<int64_t>(i));
    }
  }
}

void SentenceModel::add_dense(const ModuleSpec& module, int64_t index) {
  DenseModule dense;
  dense.activation = module.dense.activation;
  dense.block = static_cast<int64_t>(blocks_.size());
  blocks_.push_back({module.path, {}, true});
  const auto add = [&](const char* name, std::vector<int64_t> shape, bool has_weight_decay) {
    Parameter parameter;
    parameter.name = name;
    parameter.module = index;
    parameter.state_path = spec_.state_path(index);
    parameter.shape = std::move(shape);
    parameter.has_weight_decay = has_weight_decay;
    blocks_.back().parameters.push_back(static_cast<int64_t>(parameters_.size()));
    parameters_.push_back(std::move(parameter));
    return &parameters_.back();
  };
  dense.weight = add("linear.weight", {module.dense.out_features, module.dense.in_features}, true);
  if (module.dense.has_bias) {
    dense.bias = add("linear.bias", {module.dense.out_features}, false);
  }
  dense.use_residual = module.dense.use_residual;
  if (dense.use_residual && module.dense.in_features != module.dense.out_features) {
    dense.residual = add("residual.weight", {module.dense.out_features, module.dense.in_features}, true);
  }
  dense_.push_back(dense);
}

int64_t SentenceModel::max_seq_length() const {
  return std::min(spec_.max_seq_length.value_or(encoder_->max_positions()), encoder_->max_positions());
}

at::Tensor SentenceModel::apply_dense(const DenseModule& dense, at::Tensor vectors_ND,
                                      const ForwardContext& context) const {
  return run_block(context, {dense.block}, std::move(vectors_ND), [&](const at::Tensor& input_ND) {
    const at::Tensor& weight = value(*dense.weight);
    const auto bias = dense.bias != nullptr ? std::optional<at::Tensor>(value(*dense.bias)) : std::nullopt;
    const auto narrowed_ND = input_ND.to(weight.scalar_type());
    const auto output_ND = apply_activation(dense.activation, at::linear(narrowed_ND, weight, bias).to(at::kFloat));
    if (!dense.use_residual) {
      return output_ND;
    }
    return output_ND +
           (dense.residual == nullptr ? input_ND : at::linear(narrowed_ND, value(*dense.residual)).to(at::kFloat));
  });
}

at::Tensor SentenceModel::embed(const TokenBatch& batch, const ForwardContext& context) const {
  at::Tensor vectors_ND;
  auto dense = dense_.begin();
  for (const ModuleSpec& module : spec_.modules) {
    switch (module.kind) {
      case ModuleKind::kTransformer:
        vectors_ND = encoder_->forward(batch, context);
        break;
      case ModuleKind::kStaticEmbedding:
        vectors_ND = pool(encoder_->forward(batch, context), batch, {PoolingMode::kMean}, /*includes_prompt=*/true);
        break;
      case ModuleKind::kPooling:
        vectors_ND = pool(vectors_ND, batch, module.pooling, module.include_prompt);
        break;
      case ModuleKind::kDense:
        vectors_ND = apply_dense(*dense++, vectors_ND, context);
        break;
      case ModuleKind::kNormalize:
        // As torch.nn.functional.normalize: a zero vector stays zero.
        vectors_ND = vectors_ND / vectors_ND.norm(2, {1}, true).clamp_min(1e-12);
        break;
    }
  }
  return vectors_ND;
}

}  // namespace stft::model
