// Freeing and refilling the memory of a tensor that lives on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace stft::shard {

// Gives the tensor's storage `bytes` bytes (0 frees them). All tensors on that storage see the new memory, whose
// contents are undefined where they were not there before. GPU memory comes from LibTorch's caching allocator on the
// current stream. A build without CUDA knows CPU tensors only.
void resize_storage(const at::Tensor& tensor, int64_t bytes);

}  // namespace stft::shard
