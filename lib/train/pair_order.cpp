#include "train/pair_order.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "loss/cosent.h"
#include "loss/similarity.h"

// Shape suffixes: N texts of this rank, D embedding width.

namespace stft::train {
namespace {

// Every rank contributes batch.local.chunk scores, those of rows that it does not have zero.
at::Tensor local_scores(const data::LocalMicroBatch& batch, const at::Tensor& embeddings_ND) {
  const int64_t rows = batch.local.count;
  if (rows == 0) {
    return at::zeros({batch.local.chunk}, embeddings_ND.options()) + embeddings_ND.sum() * 0.0;
  }
  STFT_CHECK(embeddings_ND.size(0) == 2 * rows, "two texts a row");
  const auto scores =
      loss::pairwise_cos_sim(embeddings_ND.narrow(0, 0, rows), embeddings_ND.narrow(0, rows, rows)).to(at::kFloat);
  return rows == batch.local.chunk ? scores
                                   : at::cat({scores, at::zeros({batch.local.chunk - rows}, scores.options())});
}

}  // namespace

at::Tensor pair_order_loss(const data::LocalMicroBatch& batch, const at::Tensor& embeddings_ND, double scale,
                           const RowGather& gather) {
  STFT_CHECK(static_cast<int64_t>(batch.scores.size()) == batch.global_rows, "a score a row of the global micro-batch");
  // A rank's rows follow those of the rank before it, so the rows come first and the slots of no row last.
  const auto scores = gather.all(local_scores(batch, embeddings_ND)).narrow(0, 0, batch.global_rows);
  auto labels = at::empty({batch.global_rows}, at::kFloat);
  std::copy(batch.scores.begin(), batch.scores.end(), labels.data_ptr<float>());
  return loss::cosent(scores, labels, scale) / static_cast<double>(gather.ranks);
}

}  // namespace stft::train
