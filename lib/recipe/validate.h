// Checks that look at several keys, or at files.
#pragma once

#include "recipe/diagnostics.h"
#include "recipe/recipe.h"

namespace stft::recipe {

// Adds every contradiction between keys, every file that is missing and a metric that nothing gives.
void validate(const Recipe& recipe, Diagnostics& diagnostics);

// The part of it about prompts: names that neither model.prompts nor the model directory has. Nothing is said before
// the model's files are here.
void check_prompts(const Recipe& recipe, Diagnostics& diagnostics);

// The part of it about the metric that chooses the best checkpoint. Its names may depend on the model, so nothing is
// said before the model's files are here.
void check_metric(const Recipe& recipe, Diagnostics& diagnostics);

// The part of it about the adapter.
void check_adapter(const Recipe& recipe, Diagnostics& diagnostics);

// The part of it about saving, the best model and early stopping.
void check_checkpoint(const Recipe& recipe, Diagnostics& diagnostics);

}  // namespace stft::recipe
