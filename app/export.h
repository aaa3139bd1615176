// `stft export`.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/weight_plan.h"

namespace stft::app {

enum class MergeBase { kOriginal, kDequantized };

struct ExportOptions {
  std::string checkpoint;         // or a model directory, or the id of a hub's model
  std::string revision = "main";  // of a hub's model
  std::string out;
  std::string base_model;  // of an adapter; empty: the one that it names
  checkpoint::WeightPrecision precision = checkpoint::WeightPrecision::kAsInput;
  bool merges_lora = false;
  std::optional<MergeBase> base;  // what the adapter is merged into; none: the original one
  bool overwrites = false;
};

// Writes the model of a checkpoint or a model directory as a sentence-transformers directory. Returns the exit code.
int run_export(const ExportOptions& options);

}  // namespace stft::app
