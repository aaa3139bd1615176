// MultipleNegativesRankingLoss (Henderson et al., "Efficient Natural Language Response Suggestion for Smart Reply",
// 2017; sentence-transformers 6.2 with directions ("query_to_doc",), partition_mode "joint").
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace stft::loss {

struct MnrlBatch {
  at::Tensor anchors_BD;     // this rank's rows
  at::Tensor candidates_CD;  // of all rows of the global micro-batch: positives first, then negatives
  at::Tensor targets_B;      // int64: each anchor's own positive among the candidates
  int64_t global_rows = 0;
};

// This rank's part of the loss: the sum over its rows of -log softmax(scale * cos(anchor, candidates))[target], divided
// by the rows of the whole global micro-batch, so that the parts of all ranks sum to the loss. fp32 scalar; 0 with a
// graph to the candidates when the rank has no rows.
at::Tensor multiple_negatives_ranking(const MnrlBatch& batch, double scale);

}  // namespace stft::loss
