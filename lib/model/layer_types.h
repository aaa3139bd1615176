// Which layers of a model look near only: config.json's layer_types.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "model/family_config.h"

namespace stft::model {

// For each of `layers` layers, whether its layer_types entry is sliding_attention rather than full_attention; without
// layer_types, what `or_else` says. UserError for another type or number of entries.
std::vector<bool> read_layer_types(const FamilyConfig& config, size_t layers,
                                   const std::function<bool(size_t)>& or_else);

}  // namespace stft::model
