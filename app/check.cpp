#include "check.h"

#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "recipe/recipe.h"

namespace stft::app {

int run_check(const CheckOptions& options) {
  const recipe::Recipe loaded = recipe::load(options.recipe_path, options.overrides);
  const std::string text = recipe::dump(recipe::resolve(loaded, options.world_size));
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw_errno("cannot write to", "stdout", errno);
  }
  return 0;
}

}  // namespace stft::app
