// What a run tells about its prompts.
#pragma once

#include "eval/evaluator.h"
#include "model/model_spec.h"
#include "recipe/recipe.h"
#include "tokenizer/tokenizer.h"

namespace stft::train {

// The prompt that goes before every kind of text, in training and evaluation, and whether pooling leaves it out. Warns
// of a prompt that only training or only evaluation uses: the model is then measured on other texts than it learns.
eval::DataNotes prompt_notes(const recipe::Recipe& recipe, const model::ModelSpec& spec,
                             const tokenizer::Tokenizer& tokenizer);

}  // namespace stft::train
