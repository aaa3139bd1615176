// The `quantization_config` of a model's config.json, as transformers 5.24 writes it for bitsandbytes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/json.h"
#include "io/safetensors.h"
#include "quant/quant_config.h"

namespace stft::quant {

// The defaults are what a missing key means. Block size and, at reading, type and double quantization are each weight's
// own (bnb_weight.h).
struct StoredQuantization {
  QuantType quant_type = QuantType::kFp4;
  bool double_quant = false;
  WeightDtype compute_dtype = WeightDtype::kFp32;
  io::Dtype storage = io::Dtype::kU8;
  std::optional<std::vector<std::string>> skip_modules;  // names of linear layers that were left alone
};

// Nothing when `config` has no quantization_config or it is null. UserError naming `origin`, the key, what was found
// and what is allowed: another method than bitsandbytes, 8-bit weights, an unknown type or dtype.
std::optional<StoredQuantization> read_quantization_config(const io::Json& config, const std::string& origin);

// The value of the key.
io::Json quantization_config_json(const StoredQuantization& quantization);

}  // namespace stft::quant
