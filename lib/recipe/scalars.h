// One scalar of a recipe as a typed value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "recipe/diagnostics.h"
#include "recipe/reader.h"
#include "recipe/yaml_document.h"

namespace stft::recipe {

// Each gives no value, and adds a problem of `path`, when the value has another type or is out of range.
std::optional<bool> read_boolean(const YamlNode& node, const std::string& path, Diagnostics& diagnostics);
std::optional<int64_t> read_integer(const YamlNode& node, const std::string& path, IntegerRange range,
                                    Diagnostics& diagnostics);
std::optional<double> read_number(const YamlNode& node, const std::string& path, NumberRange range,
                                  Diagnostics& diagnostics);
// A plain number or boolean is no string; one that an environment variable gave is.
std::optional<std::string> read_text(const YamlNode& node, const std::string& path, Diagnostics& diagnostics);

}  // namespace stft::recipe
