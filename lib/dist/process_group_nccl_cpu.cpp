// For builds without CUDA.
#include "base/error.h"
#include "dist/process_group_impl.h"

namespace stft::dist {

BackendPointer make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& /*store*/,
                                 const ProcessGroup::Options& /*options*/) {
  throw UserError(
      "the nccl backend was asked for, but this build has no CUDA (cmake --preset cuda makes one that has)");
}

}  // namespace stft::dist
