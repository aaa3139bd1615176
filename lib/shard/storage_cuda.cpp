// For builds with CUDA.
#include <ATen/native/Resize.h>
#include <ATen/native/cuda/Resize.h>

#include "shard/storage.h"

namespace stft::shard {

void resize_storage(const at::Tensor& tensor, int64_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (tensor.is_cuda()) {
    at::native::resize_bytes_cuda(storage, static_cast<size_t>(bytes));
  } else {
    at::native::resize_bytes_cpu(storage, static_cast<size_t>(bytes));
  }
}

}  // namespace stft::shard
