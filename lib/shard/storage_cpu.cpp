// For builds without CUDA.
#include <ATen/native/Resize.h>

#include "base/error.h"
#include "shard/storage.h"

namespace stft::shard {

void resize_storage(const at::Tensor& tensor, int64_t bytes) {
  STFT_CHECK(tensor.is_cpu(), "a tensor of another device in a build for CPUs");
  at::native::resize_bytes_cpu(tensor.storage().unsafeGetStorageImpl(), static_cast<size_t>(bytes));
}

}  // namespace stft::shard
