// A checkpoint of stft in the other form, or cut for another number of ranks, from files alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/checkpoint_config.h"

namespace stft::checkpoint {

struct ConvertOptions {
  StateDictType to = StateDictType::kFull;
  std::optional<int64_t> ranks;  // parts of the sharded directories; none: as many as the checkpoint has
  std::string out;               // replaced when it exists
};

// Writes `options.out`, a complete checkpoint with everything that `checkpoint` holds: model, optimizer, run state. One
// tensor in memory at a time. UserError when `checkpoint` is no complete checkpoint of stft.
void convert_checkpoint(const std::string& checkpoint, const ConvertOptions& options);

}  // namespace stft::checkpoint
