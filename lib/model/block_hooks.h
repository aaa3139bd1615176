// The seam for sharding: the model's forward pass tells an observer where its blocks begin and end.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace stft::model {

// Implemented by the sharding engine. Blocks come in ascending order, each exactly once a forward pass.
class BlockObserver {
 public:
  virtual ~BlockObserver() = default;

  // Block `block` is about to compute from `input` ([tokens or texts, features]; undefined for the first block, which
  // starts from token ids). Returns the tensor to compute from.
  virtual at::Tensor before_block(int64_t block, at::Tensor input) = 0;

  // Block `block` has computed `output`. Returns the tensor to go on with.
  virtual at::Tensor after_block(int64_t block, at::Tensor output) = 0;
};

}  // namespace stft::model
