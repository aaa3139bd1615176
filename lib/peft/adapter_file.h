// PEFT's files: adapter_config.json and the keys of adapter_model.safetensors (PEFT 0.21).
#pragma once

#include <optional>
#include <string>

#include "peft/lora.h"
#include "peft/peft_config.h"

namespace stft::peft {

inline constexpr const char* kAdapterWeightsFile = "adapter_model.safetensors";

struct AdapterFileConfig {
  AdapterConfig config;
  std::string base_model;               // base_model_name_or_path
  std::optional<std::string> revision;  // of a hub's base model
  std::string path;                     // the file, for messages
};

// Keys that are missing have PEFT's defaults, unknown ones are passed over. UserError naming the file and the key for
// features that are not available, and for malformed values.
AdapterFileConfig read_adapter_config(const std::string& directory);

// adapter_config.json as PEFT writes it: sorted keys, the modules by their full names.
std::string adapter_config_text(const Adapter& adapter);

}  // namespace stft::peft
