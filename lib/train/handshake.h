// Do all ranks run the same? Asked before anything depends on it, so that ranks that differ end with a message and not
// in a collective that waits for ever, or with a model that nobody asked for.
#pragma once

#include <string>
#include <vector>

#include "data/batch_loader.h"
#include "dist/process_group.h"
#include "model/parameter.h"
#include "recipe/recipe.h"

namespace stft::train {

// Something that must be equal on all ranks.
struct Fact {
  std::string field;  // what messages call it
  std::string value;  // one line, or several: messages show those that differ
};

// Collective: compares checksums, and texts only where those differ. UserError, the same on all ranks, with a line for
// each field that differs: what the ranks have, and which ranks. Ranks with other fields, or another number of them,
// are told so too.
void agree_on_facts(dist::ProcessGroup& world, const std::vector<Fact>& facts);

// Every key of the resolved recipe.
Fact recipe_fact(const recipe::Recipe& recipe);

// Name, module, shape and whether it is trained of every parameter.
Fact parameter_fact(const model::ParameterTable& table);

// The contents of these files of `directory`, those that exist.
Fact file_fact(std::string field, const std::string& directory, const std::vector<std::string>& names);

// What a step's collectives are sized by: the rows of every global micro-batch and their negatives and scores. Gloo
// ends the process when ranks come to an all-gather with different sizes.
Fact batch_fact(const data::LocalStep& step);

}  // namespace stft::train
