// How the texts of one of the recipe's data sets become token ids for a model.
#pragma once

#include <string>

#include "data/batch_maker.h"
#include "data/data_config.h"
#include "model/sentence_model.h"

namespace stft::train {

// What goes before the role's texts: empty, one of the model's prompts, or the text that the data set's prompts give.
std::string role_prompt(const data::DatasetConfig& config, const model::ModelSpec& spec, const std::string& role);

// The data set's prompts by role, each the name of one of the model's prompts or the text itself, and the model's
// greatest length; for rank 0 of 1.
data::BatchOptions batch_options(const data::DatasetConfig& config, const model::SentenceModel& model);

}  // namespace stft::train
