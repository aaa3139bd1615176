#include "check.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "hub/snapshot.h"
#include "locate_model.h"
#include "recipe/recipe.h"
#include "standard_output.h"
#include "train/run.h"

namespace stft::app {

int run_check(const CheckOptions& options) {
  const recipe::Recipe loaded = recipe::load(options.recipe_path, options.overrides);
  const int64_t ranks = options.world_size.value_or(loaded.launch.nproc.value_or(1));
  recipe::Recipe resolved = recipe::resolve(loaded, ranks);
  if (const auto request = hub_request(resolved)) {
    if (const auto snapshot = hub::find_model(*request, hub::settings_from_environment())) {
      log::info(fmt::format("model '{}' is checked as the cache has it ({})", request->id, snapshot->commit));
      resolved = recipe::with_snapshot(std::move(resolved), snapshot->directory);
    } else {
      log::warn(
          fmt::format("model '{}' is not in the cache: of it only the id's form is checked, and neither the "
                      "evaluators nor what else depends on the model's files; stft train downloads it",
                      request->id));
      train::check_inputs_without_model(resolved, ranks);
      write_result(recipe::dump(resolved));
      return 0;
    }
  }
  train::check_inputs(resolved, ranks);
  write_result(recipe::dump(resolved));
  return 0;
}

}  // namespace stft::app
