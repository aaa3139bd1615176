// `stft state-dict`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/checkpoint_config.h"

namespace stft::app {

struct StateDictOptions {
  std::string checkpoint;
  checkpoint::StateDictType mode = checkpoint::StateDictType::kFull;
  std::string out;
  std::optional<int64_t> ranks;
  bool overwrites = false;
};

// Writes a checkpoint in the other form, or cut for another number of ranks. Returns the exit code.
int run_state_dict(const StateDictOptions& options);

}  // namespace stft::app
