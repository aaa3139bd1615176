// The recipe's `checkpoint:` block.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace stft::checkpoint {

enum class StateDictType { kFull, kSharded };
enum class SaveStrategy { kNo, kSteps, kEpoch, kBest };

struct CheckpointConfig {
  StateDictType state_dict_type = StateDictType::kSharded;
  SaveStrategy save_strategy = SaveStrategy::kSteps;
  double save_steps = 500;
  std::optional<int64_t> save_total_limit;
  bool save_only_model = false;
  bool adapter_only = true;
  bool load_best_model_at_end = false;
  std::optional<std::string> metric_for_best_model;
  std::optional<bool> greater_is_better;
  bool is_async = false;
};

}  // namespace stft::checkpoint
