// Private to lib/checkpoint: the files of a model directory other than weights.
#pragma once

#include <string>

#include "model/model_spec.h"

namespace stft::checkpoint {

// Copies what stays as it is from spec.directory to `directory` (which exists) and writes modules.json, the modules'
// configurations, sentence_bert_config.json and config_sentence_transformers.json where the spec differs from the
// directory or the directory lacks them (in the layout that sentence-transformers 2.x to 6.2 load).
void write_model_files(const model::ModelSpec& spec, const std::string& directory);

// fsync of every file and folder below `directory`.
void make_durable(const std::string& directory);

}  // namespace stft::checkpoint
