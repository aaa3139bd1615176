// What metric_names (recipe.h) needs to know of the model.
#pragma once

#include <string>

#include "recipe/recipe.h"

namespace stft::recipe {

// similarity_fn_name of a model directory's config_sentence_transformers.json; cosine, as in sentence-transformers,
// when there is no such file or it does not say. What is wrong with the file is told by the reader of the model.
model::Similarity similarity_of_model(const std::string& directory);

}  // namespace stft::recipe
