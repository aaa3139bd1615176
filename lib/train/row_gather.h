// What a loss needs of the ranks it is computed over.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace stft::train {

struct RowGather {
  int64_t ranks = 1;
  // Every rank's rows (equal shapes [c, ...]) in rank order: [ranks * c, ...], with gradient.
  std::function<at::Tensor(const at::Tensor& local)> all;
};

}  // namespace stft::train
