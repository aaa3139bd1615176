// The recipe's `launch:` block.
#pragma once

#include <cstdint>
#include <optional>

namespace stft::dist {

enum class BackendKind { kAuto, kNccl, kGloo };

struct LaunchConfig {
  std::optional<int64_t> nproc;  // unset: auto, one rank per visible GPU; without a GPU 1
  BackendKind backend = BackendKind::kAuto;
  double timeout_s = 1800;                  // of one collective
  std::optional<int64_t> threads_per_rank;  // unset: auto, cores / ranks
};

}  // namespace stft::dist
