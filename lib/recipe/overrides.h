// What is done to a recipe's tree before it is read: --set arguments and environment variables.
#pragma once

#include <string>

#include "recipe/diagnostics.h"
#include "recipe/yaml_document.h"

namespace stft::recipe {

// Applies one "a.b=value" to the tree. The value is YAML; a part of the key path that meets a list is an index from 0
// (the length appends), and `data.train.0` also names a single set that was given without a list. Problems of the
// argument itself are added to `diagnostics`; a value that is not YAML throws UserError.
void apply_override(YamlNode& root, const std::string& argument, Diagnostics& diagnostics);

// Replaces ${VAR} and ${VAR:-default} in every scalar; the default also stands in for an empty variable. $${ gives a
// literal ${. A variable that is unset and has no default is a problem.
void expand_environment(YamlNode& root, Diagnostics& diagnostics);

// `text` with every ${ written so that expand_environment gives it back.
std::string escape_environment(const std::string& text);

}  // namespace stft::recipe
