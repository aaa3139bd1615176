// `stft check`: validates a recipe without training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stft::app {

struct CheckOptions {
  std::string recipe_path;
  std::vector<std::string> overrides;  // "a.b=value"
  std::optional<int64_t> world_size;   // none: launch.nproc of the recipe, else 1
};

// Reads everything that the recipe names, as `stft train` would, short of the weights' values; a hub's model is not
// downloaded: what needs its files is checked when the cache has them, else a warning says so. Prints the recipe as
// resolved for `world_size` ranks to stdout and returns 0. Throws UserError with every problem of the recipe, else with
// the first of its files, SystemError when stdout cannot be written.
int run_check(const CheckOptions& options);

}  // namespace stft::app
