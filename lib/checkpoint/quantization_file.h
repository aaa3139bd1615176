// How the base was quantized that an adapter was trained on: stft_quantization.json in the adapter's directory. PEFT's
// own files do not say it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quant/quant_config.h"

namespace stft::checkpoint {

inline constexpr const char* kQuantizationFile = "stft_quantization.json";

struct QuantizationRecord {
  quant::QuantizationConfig config;  // the compute type is the run's own business: always the default here
  uint64_t base_hash = 0;            // ShardEngine::packed_checksum of the base
};

std::string to_json(const QuantizationRecord& record);

// None when the directory has no such file. UserError naming file and key for one that is malformed.
std::optional<QuantizationRecord> read_quantization_file(const std::string& directory);

}  // namespace stft::checkpoint
