// For builds with CUDA: process groups and shards can live on GPUs, the rest of a training run cannot.
#include "recipe/nccl_refusal.h"

namespace stft::recipe {

std::string nccl_refusal() {
  return "nccl: training on GPUs is not available yet";
}

}  // namespace stft::recipe
