#include "model/relative_bias.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

// Shape suffixes: H heads, L length, R distances.

namespace stft::model {
namespace {

// In fp32, as transformers computes it: at the edges of buckets the rounding decides.
int64_t bucket_of(int64_t distance, const RelativeBuckets& buckets) {
  const int64_t half = buckets.buckets / 2;
  const int64_t first = distance > 0 ? half : 0;
  const int64_t exact = half / 2;
  const int64_t away = std::abs(distance);
  if (away < exact) {
    return first + away;
  }
  const float steps =
      std::log(static_cast<float>(away) / static_cast<float>(exact)) /
      static_cast<float>(std::log(static_cast<double>(buckets.max_distance) / static_cast<double>(exact))) *
      static_cast<float>(half - exact);
  return first + std::min(half - 1, exact + static_cast<int64_t>(steps));
}

}  // namespace

at::Tensor relative_bias_rows(const at::Tensor& table, const RelativeBuckets& buckets, int64_t longest) {
  auto bucket_R = at::empty({2 * longest - 1}, at::kLong);
  for (int64_t distance = 1 - longest; distance < longest; ++distance) {
    bucket_R.data_ptr<int64_t>()[distance + longest - 1] = bucket_of(distance, buckets);
  }
  return at::embedding(table, bucket_R);
}

ScoreBias relative_score_bias(at::Tensor rows) {
  return [rows_RH = std::move(rows)](const BucketHeads& heads) {
    const int64_t length = heads.query_BHLE.size(2);
    const int64_t longest = (rows_RH.size(0) + 1) / 2;
    const auto position_L = at::arange(length);
    const auto row_LL = position_L - position_L.unsqueeze(1) + (longest - 1);
    return rows_RH.to(at::kFloat)
        .index_select(0, row_LL.view({-1}))
        .view({length, length, -1})
        .permute({2, 0, 1})
        .unsqueeze(0);
  };
}

}  // namespace stft::model
