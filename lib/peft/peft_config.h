// The recipe's `adapter:` block. Names and defaults are PEFT's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "quant/quant_config.h"

namespace stft::peft {

enum class AdapterType { kLora, kQlora };
enum class LoraBias { kNone, kAll, kLoraOnly };
enum class LoraInit { kTrue, kGaussian, kPissa };

inline constexpr const char* kAdapterConfigFile = "adapter_config.json";

// Whether the directory holds an adapter and not a whole model.
inline bool is_adapter_directory(const std::string& directory) {
  const std::filesystem::path path(directory);
  std::error_code error;
  return std::filesystem::exists(path / kAdapterConfigFile, error) &&
         !std::filesystem::exists(path / "config.json", error);
}

struct AdapterConfig {
  AdapterType type = AdapterType::kLora;
  int64_t r = 8;
  double lora_alpha = 8;
  double lora_dropout = 0.0;
  std::vector<std::string> target_modules;  // one entry "all-linear", one regex, or suffixes
  bool target_modules_is_list = false;
  std::vector<std::string> exclude_modules;
  bool exclude_modules_is_list = true;  // else one regex, or nothing
  std::vector<std::string> modules_to_save;
  std::map<std::string, int64_t> rank_pattern;
  std::map<std::string, double> alpha_pattern;
  std::optional<std::vector<int64_t>> layers_to_transform;
  bool use_rslora = false;
  bool use_dora = false;
  bool lora_bias = false;
  LoraBias bias = LoraBias::kNone;
  LoraInit init_lora_weights = LoraInit::kTrue;
  quant::WeightDtype dtype = quant::WeightDtype::kFp32;
  std::optional<std::string> path;
};

}  // namespace stft::peft
