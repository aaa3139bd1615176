#include "train/contrastive.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "loss/mnrl.h"

// Shape suffixes: N texts of this rank, S slots of a rank, C candidates, D embedding width.

namespace stft::train {
namespace {

at::Tensor index_tensor(const std::vector<int64_t>& values) {
  auto tensor = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), tensor.data_ptr<int64_t>());
  return tensor;
}

bool is_identity(const std::vector<int64_t>& values, int64_t size) {
  if (static_cast<int64_t>(values.size()) != size) {
    return false;
  }
  for (int64_t i = 0; i < size; ++i) {
    if (values[static_cast<size_t>(i)] != i) {
      return false;
    }
  }
  return true;
}

// Every rank contributes the same number of slots, (1 + max_negatives) * chunk: slot column * chunk + row. A row or a
// negative that does not exist leaves its slot zero.
at::Tensor fill_slots(const data::LocalMicroBatch& batch, const at::Tensor& embeddings_ND) {
  const int64_t slots = (1 + batch.max_negatives) * batch.local.chunk;
  if (batch.local.count == 0) {
    return at::zeros({slots, embeddings_ND.size(1)}, embeddings_ND.options()) + embeddings_ND.sum() * 0.0;
  }
  std::vector<int64_t> slot_of_text;
  for (int64_t text = batch.local.count; text < batch.texts.size(); ++text) {
    const int64_t column = static_cast<int64_t>(batch.texts.columns[static_cast<size_t>(text)]) - 1;
    const int64_t row = static_cast<int64_t>(batch.texts.rows[static_cast<size_t>(text)]) - batch.local.first;
    slot_of_text.push_back(column * batch.local.chunk + row);
  }
  const auto documents = embeddings_ND.narrow(0, batch.local.count, embeddings_ND.size(0) - batch.local.count);
  if (is_identity(slot_of_text, slots)) {
    return documents;
  }
  return at::zeros({slots, embeddings_ND.size(1)}, embeddings_ND.options())
      .index_copy(0, index_tensor(slot_of_text), documents);
}

// Where the candidates stand among the gathered slots of all ranks.
std::vector<int64_t> candidate_slots(const data::LocalMicroBatch& batch) {
  const int64_t chunk = batch.local.chunk;
  const int64_t slots = (1 + batch.max_negatives) * chunk;
  std::vector<int64_t> result;
  for (int64_t column = 0; column < 1 + batch.max_negatives; ++column) {
    for (int64_t row = 0; row < batch.global_rows; ++row) {
      if (column <= batch.negatives[static_cast<size_t>(row)]) {
        result.push_back(row / chunk * slots + column * chunk + row % chunk);
      }
    }
  }
  return result;
}

}  // namespace

at::Tensor ranking_loss(const data::LocalMicroBatch& batch, const at::Tensor& embeddings_ND, double scale,
                        const RowGather& gather) {
  STFT_CHECK(embeddings_ND.size(0) == batch.texts.size(), "one vector a text");
  const auto gathered = gather.all(fill_slots(batch, embeddings_ND));
  const auto places = candidate_slots(batch);
  loss::MnrlBatch ranked;
  ranked.anchors_BD = embeddings_ND.narrow(0, 0, batch.local.count);
  ranked.candidates_CD =
      is_identity(places, gathered.size(0)) ? gathered : gathered.index_select(0, index_tensor(places));
  // The positives are the first candidates, in row order.
  ranked.targets_B = at::arange(batch.local.first, batch.local.first + batch.local.count, at::kLong);
  ranked.global_rows = batch.global_rows;
  return loss::multiple_negatives_ranking(ranked, scale);
}

}  // namespace stft::train
