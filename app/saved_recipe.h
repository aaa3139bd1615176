// The recipe that a run saved beside its models.
#pragma once

#include <optional>
#include <string>

namespace stft::app {

// Of a checkpoint, or of the run that a checkpoint or final/ belongs to; none when there is no such file.
std::optional<std::string> saved_recipe(const std::string& model);

}  // namespace stft::app
