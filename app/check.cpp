#include "check.h"

#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "recipe/recipe.h"
#include "train/run.h"

namespace stft::app {

int run_check(const CheckOptions& options) {
  const recipe::Recipe loaded = recipe::load(options.recipe_path, options.overrides);
  const int64_t ranks = options.world_size.value_or(loaded.launch.nproc.value_or(1));
  const recipe::Recipe resolved = recipe::resolve(loaded, ranks);
  train::check_inputs(resolved, ranks);
  const std::string text = recipe::dump(resolved);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw_errno("cannot write to", "stdout", errno);
  }
  return 0;
}

}  // namespace stft::app
