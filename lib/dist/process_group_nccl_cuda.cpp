// For builds with CUDA.
#include <c10/cuda/CUDAFunctions.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "base/error.h"
#include "dist/process_group_impl.h"

namespace stft::dist {

BackendPointer make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroup::Options& options) {
  if (c10::cuda::device_count() == 0) {
    throw SystemError("the nccl backend was asked for, but there is no GPU that CUDA can use");
  }
  auto nccl_options = c10d::ProcessGroupNCCL::Options::create();
  nccl_options->timeout = std::chrono::milliseconds(static_cast<int64_t>(options.timeout_s * 1000));
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, static_cast<int>(options.rank),
                                                     static_cast<int>(options.world_size), nccl_options);
}

}  // namespace stft::dist
