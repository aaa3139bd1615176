// For builds without CUDA.
#include "recipe/nccl_refusal.h"

namespace stft::recipe {

std::string nccl_refusal() {
  return "nccl: training on GPUs is not available yet, and this build has no CUDA";
}

}  // namespace stft::recipe
