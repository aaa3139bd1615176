// Similarities of vectors, by the names of sentence-transformers.
#pragma once

#include <ATen/core/Tensor.h>

namespace stft::loss {

// Each row of [N, D] divided by its Euclidean norm; a row of zeros stays one.
at::Tensor unit_rows(const at::Tensor& vectors_ND);

// The cosine of each row of `a` [N, D] and the same row of `b` [N, D]: [N].
at::Tensor pairwise_cos_sim(const at::Tensor& a_ND, const at::Tensor& b_ND);

}  // namespace stft::loss
