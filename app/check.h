// `stft check`: validates a recipe without training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stft::app {

struct CheckOptions {
  std::string recipe_path;
  std::vector<std::string> overrides;  // "a.b=value"
  int64_t world_size = 1;              // ranks
};

// Prints the recipe as resolved for `world_size` ranks to stdout and returns 0. Throws UserError with every problem of
// the recipe, SystemError when stdout cannot be written.
int run_check(const CheckOptions& options);

}  // namespace stft::app
