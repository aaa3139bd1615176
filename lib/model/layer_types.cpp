#include "model/layer_types.h"

#include <fmt/format.h>

namespace stft::model {

std::vector<bool> read_layer_types(const FamilyConfig& config, size_t layers,
                                   const std::function<bool(size_t)>& or_else) {
  std::vector<bool> result;
  const auto types = config.json().find("layer_types");
  if (types == config.json().end() || types->is_null()) {
    for (size_t i = 0; i < layers; ++i) {
      result.push_back(or_else(i));
    }
    return result;
  }
  if (!types->is_array() || types->size() != layers) {
    config.refuse("layer_types", fmt::format("expected a list of {} types", layers));
  }
  for (const io::Json& type : *types) {
    if (type != "sliding_attention" && type != "full_attention") {
      config.refuse("layer_types", type.dump() + " is not available yet (sliding_attention and full_attention are)");
    }
    result.push_back(type == "sliding_attention");
  }
  return result;
}

}  // namespace stft::model
