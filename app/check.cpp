#include "check.h"

#include "recipe/recipe.h"
#include "standard_output.h"
#include "train/run.h"

namespace stft::app {

int run_check(const CheckOptions& options) {
  const recipe::Recipe loaded = recipe::load(options.recipe_path, options.overrides);
  const int64_t ranks = options.world_size.value_or(loaded.launch.nproc.value_or(1));
  const recipe::Recipe resolved = recipe::resolve(loaded, ranks);
  train::check_inputs(resolved, ranks);
  write_result(recipe::dump(resolved));
  return 0;
}

}  // namespace stft::app
