// What the recipe's schema knows but this version cannot do yet. All refusals live here; a feature that arrives takes
// its lines out of availability.cpp.
#pragma once

#include <string>

#include "recipe/diagnostics.h"
#include "recipe/reader.h"
#include "recipe/recipe.h"

namespace stft::recipe {

// Why a loss or an evaluator of this class name cannot be used: unknown, with the nearest name, or not available yet.
// Empty when it can.
std::string refuse_loss(const std::string& type);
std::string refuse_evaluator(const std::string& type);

// Refuses the options of the peer's evaluator that are not read yet.
void refuse_evaluator_options(Reader& reader, eval::EvaluatorType type);

// Adds a problem for every setting of `recipe` that is not available yet and differs from its default.
void check_availability(const Recipe& recipe, Diagnostics& diagnostics);

}  // namespace stft::recipe
