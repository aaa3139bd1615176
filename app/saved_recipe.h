// The recipe that a run saved beside its models.
#pragma once

#include <optional>
#include <string>

#include "quant/quant_config.h"

namespace stft::app {

// Of a checkpoint, or of the run that a checkpoint or final/ belongs to; none when there is no such file.
std::optional<std::string> saved_recipe(const std::string& model);

// How the base was quantized that an adapter was trained on; none when it was not, or no recipe lies there.
std::optional<quant::QuantizationConfig> saved_quantization(const std::string& model);

}  // namespace stft::app
