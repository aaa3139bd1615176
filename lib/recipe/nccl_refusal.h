// Why `launch.backend: nccl` is refused.
#pragma once

#include <string>

namespace stft::recipe {

std::string nccl_refusal();

}  // namespace stft::recipe
