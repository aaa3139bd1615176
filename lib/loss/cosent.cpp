#include "loss/cosent.h"

#include <ATen/ATen.h>

#include <limits>
#include <tuple>

namespace stft::loss {

at::Tensor cosent(const at::Tensor& scores, const at::Tensor& labels, double scale) {
  const auto [ascending, order] = at::sort(labels, /*stable=*/true, 0, /*descending=*/false);
  const auto scaled = scores.index_select(0, order) * scale;
  // tail[j] = log of the sum of exp(-scaled[i]) over i >= j; over nothing: log 0.
  const auto none = at::full({1}, -std::numeric_limits<float>::infinity(), scaled.options());
  const auto tail = at::cat({at::logcumsumexp(scaled.flip(0).neg(), 0).flip(0), none});
  // Row k meets all rows of greater labels at once: they are a tail of the order, past the labels equal to its own.
  const auto first_greater = at::searchsorted(ascending, ascending, /*out_int32=*/false, /*right=*/true);
  const auto terms = scaled + tail.index_select(0, first_greater);
  return at::logsumexp(at::cat({at::zeros({1}, scaled.options()), terms}), {0});
}

}  // namespace stft::loss
