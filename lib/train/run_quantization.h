// What of a run is about the quantized base of its adapter.
#pragma once

#include <map>
#include <string>

#include "recipe/recipe.h"
#include "train/run.h"

namespace stft::train {

// For an evaluation of an adapter: its base is quantized as it was when it was trained, whatever the recipe says.
// Unchanged for another model, and where the adapter's directory does not say it. `tells`: warns of a difference.
recipe::Recipe with_stored_quantization(recipe::Recipe recipe, bool tells);

// Warns when the run goes on from an adapter (adapter.path) that was trained on a base in another form.
void tell_about_other_quantization(const Run& run);

// To the log; `run` has a quantized base.
void tell_about_quantized(const Run& run);

// File name and content of the record that goes into each directory of the run's adapter; none without a quantized
// base.
std::map<std::string, std::string> quantization_texts(const Run& run);

// Whether the adapter of `directory` was trained on another quantized base than the run's.
bool is_other_base(const Run& run, const std::string& directory);

// Collective: that the packed bytes are still those of the beginning; InternalError when they are not.
void check_quantized_base(Run& run);

}  // namespace stft::train
