#include "train/batch_loss.h"

#include "base/error.h"
#include "dist/autograd_collectives.h"
#include "train/contrastive.h"
#include "train/pair_order.h"

namespace stft::train {
namespace {

at::Tensor loss_over(const loss::LossConfig& config, const data::LocalMicroBatch& batch,
                     const at::Tensor& embeddings_ND, const RowGather& gather) {
  switch (config.type) {
    case loss::LossType::kCoSent:
      return pair_order_loss(batch, embeddings_ND, config.scale, gather);
    case loss::LossType::kMultipleNegativesRanking:
      return ranking_loss(batch, embeddings_ND, config.scale, gather);
  }
  throw_internal("known loss", "");
}

}  // namespace

at::Tensor batch_loss(const loss::LossConfig& config, const data::LocalMicroBatch& batch,
                      const at::Tensor& embeddings_ND, dist::ProcessGroup& world) {
  const RowGather gather{world.size(),
                         [&world](const at::Tensor& local) { return dist::all_gather_with_grad(local, world); }};
  return loss_over(config, batch, embeddings_ND, gather);
}

at::Tensor local_loss(const loss::LossConfig& config, const data::LocalMicroBatch& batch,
                      const at::Tensor& embeddings_ND) {
  STFT_CHECK(batch.local.count == batch.global_rows, "the batch is whole");
  return loss_over(config, batch, embeddings_ND, {1, [](const at::Tensor& local) { return local; }});
}

}  // namespace stft::train
