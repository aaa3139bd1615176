// CoSENTLoss (Huang et al., "CoSENT: Consistent Sentence Embedding via Similarity Ranking", 2024; sentence-transformers
// 6.2): pairs of texts whose similarities shall be ordered as their labels are.
#pragma once

#include <ATen/core/Tensor.h>

namespace stft::loss {

// log(1 + sum over all (i, k) with labels[i] > labels[k] of exp(scale * (scores[k] - scores[i]))). `scores` and
// `labels`: fp32 [rows], rows >= 1; equal labels order nothing. fp32 scalar, 0 when no two labels differ, finite for
// finite scores; differentiable in the scores. Time rows * log(rows), memory of a few vectors of rows.
at::Tensor cosent(const at::Tensor& scores, const at::Tensor& labels, double scale);

}  // namespace stft::loss
