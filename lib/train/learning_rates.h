// train.learning_rate_mapping: which parameters have a learning rate of their own.
#pragma once

#include <string>
#include <vector>

#include "model/sentence_model.h"
#include "recipe/recipe.h"

namespace stft::train {

// Sets the rate of every trained parameter that a pattern is found in (Python's re.search); of several patterns the
// last one counts, as in sentence-transformers 6.2. A pattern is looked for in these spellings of a parameter's name:
//   model.0.model.encoder.layer.0.output.dense.weight         as the peer's loss names it, and as checkpoints do
//   encoder.layer.0.output.dense.weight                       as the module's own files name it
//   base_model.model.encoder.layer.0.output.dense.weight      of the transformer with an adapter: as PEFT names it
// UserError, with the place of the pattern: not a regular expression, or found in no trained parameter.
void set_learning_rates(const recipe::Recipe& recipe, model::SentenceModel& model);

// For each rate that parameters have of their own, a line that names them.
std::vector<std::string> describe_learning_rates(const model::SentenceModel& model);

}  // namespace stft::train
