#include "loss/similarity.h"

#include <ATen/ATen.h>

namespace stft::loss {

at::Tensor unit_rows(const at::Tensor& vectors_ND) {
  return vectors_ND / vectors_ND.norm(2, {1}, true).clamp_min(1e-12);
}

at::Tensor pairwise_cos_sim(const at::Tensor& a_ND, const at::Tensor& b_ND) {
  return (unit_rows(a_ND) * unit_rows(b_ND)).sum(1);
}

}  // namespace stft::loss
