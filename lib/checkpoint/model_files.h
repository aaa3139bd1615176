// Private to lib/checkpoint: the files of a model directory other than weights.
#pragma once

#include <string>

#include "model/model_spec.h"

namespace stft::checkpoint {

enum class ModelForm {
  kWhole,   // with config.json, without an adapter's configuration
  kAdapter  // an adapter alone: without config.json; the caller writes adapter_config.json
};

// Copies what stays as it is from spec.directory (config.json from spec.base) to `directory` (which exists) and writes
// modules.json, the modules' configurations, config.json, sentence_bert_config.json and
// config_sentence_transformers.json where the spec differs from the directory or the directory lacks them (in the
// layout that sentence-transformers 2.x to 6.2 load).
void write_model_files(const model::ModelSpec& spec, const std::string& directory, ModelForm form = ModelForm::kWhole);

// Writes the config.json of an adapter's base to `directory`, which is made, for weights as what they stand for.
void write_base_config(const model::ModelSpec& spec, const std::string& directory);

// The tokenizer of a directory of PEFT's, if it has one, in place of its base's in `to`.
void replace_tokenizer(const std::string& from, const std::string& to);

// Copies the files of a directory of an adapter as they are, without weights and a checkpoint's state.
void copy_adapter_files(const std::string& from, const std::string& to);

// Writes `dtype` ("float32", ...) into the config.json of `directory`, every other byte kept.
void set_config_dtype(const std::string& directory, const std::string& dtype);

}  // namespace stft::checkpoint
