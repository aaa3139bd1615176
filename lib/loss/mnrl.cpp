#include "loss/mnrl.h"

#include <ATen/ATen.h>

#include "loss/similarity.h"

// Shape suffixes: B anchors of this rank, C candidates, D embedding width.

namespace stft::loss {

at::Tensor multiple_negatives_ranking(const MnrlBatch& batch, double scale) {
  if (batch.anchors_BD.size(0) == 0) {
    return batch.candidates_CD.sum() * 0.0 + batch.anchors_BD.sum() * 0.0;
  }
  const auto scores_BC = at::mm(unit_rows(batch.anchors_BD), unit_rows(batch.candidates_CD).t()) * scale;
  const auto own_B = scores_BC.gather(1, batch.targets_B.unsqueeze(1)).squeeze(1);
  return (at::logsumexp(scores_BC, {1}) - own_B).sum() / static_cast<double>(batch.global_rows);
}

}  // namespace stft::loss
