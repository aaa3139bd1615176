// The small JSON files beside a tokenizer.
#pragma once

#include <optional>
#include <string>

#include "io/json.h"

namespace stft::tokenizer {

// Each an object; empty where the file is missing.
struct ConfigFiles {
  std::string directory;
  io::Json tokenizer_config = io::Json::object();    // tokenizer_config.json
  io::Json special_tokens_map = io::Json::object();  // special_tokens_map.json
  io::Json added_tokens = io::Json::object();        // added_tokens.json
  io::Json model_config = io::Json::object();        // config.json
  io::Json sentence_config = io::Json::object();     // sentence_bert_config.json

  std::string path_of(const std::string& name) const;
  bool has(const std::string& name) const;
};

// UserError when the directory is none, or a file is malformed or no object.
ConfigFiles read_config_files(const std::string& directory);

// The member of an object, or null.
const io::Json& member(const io::Json& json, const std::string& key);

// tokenizer_config.json's "model_max_length"; nothing when it is missing, null or no real limit (above 1e9).
std::optional<std::int64_t> model_max_length(const ConfigFiles& files);

// sentence_bert_config.json's "max_seq_length"; nothing when it is missing or null.
std::optional<std::int64_t> max_seq_length(const ConfigFiles& files);

// A flag of tokenizer_config.json.
std::optional<bool> config_flag(const ConfigFiles& files, const std::string& key);

}  // namespace stft::tokenizer
