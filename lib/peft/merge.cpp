#include "peft/merge.h"

#include <ATen/ATen.h>

namespace stft::peft {

at::Tensor merged_weight(const at::Tensor& weight, const ModuleTensors& module) {
  const at::NoGradGuard no_grad;
  const auto product = at::matmul(module.up.to(at::kFloat), module.down.to(at::kFloat));
  const auto delta = ((module.is_embedding ? product.t() : product) * module.scale).to(module.up.scalar_type());
  const auto sum = weight + delta.to(at::kFloat);
  if (!module.magnitude.defined()) {
    return sum;
  }
  const auto norm = at::linalg_norm(sum, std::nullopt, at::IntArrayRef({1}));
  return (module.magnitude.to(at::kFloat) / norm).view({-1, 1}) * sum;
}

at::Tensor merged_bias(const at::Tensor& bias, const ModuleTensors& module) {
  const at::NoGradGuard no_grad;
  return bias + module.up_bias.to(at::kFloat) * module.scale;
}

}  // namespace stft::peft
