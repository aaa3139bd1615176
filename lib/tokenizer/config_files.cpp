#include "tokenizer/config_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace stft::tokenizer {
namespace {

using io::Json;

// Files write 1e30 where there is no limit.
constexpr double kNoRealLimit = 1e9;

void check_positive(std::int64_t value, const std::string& key, const std::string& path) {
  if (value <= 0) {
    throw UserError(fmt::format("{}: {} is {}; it must be above 0", path, key, value));
  }
}

Json read_if_present(const ConfigFiles& files, const std::string& name) {
  if (!files.has(name)) {
    return Json::object();
  }
  Json json = io::read_json_file(files.path_of(name));
  if (!json.is_object()) {
    throw UserError(fmt::format("{}: {} instead of an object", files.path_of(name), io::json_type_name(json)));
  }
  return json;
}

}  // namespace

std::string ConfigFiles::path_of(const std::string& name) const {
  return (std::filesystem::path(directory) / name).string();
}

bool ConfigFiles::has(const std::string& name) const {
  std::error_code unreadable;  // the read reports it
  return std::filesystem::status(path_of(name), unreadable).type() != std::filesystem::file_type::not_found;
}

ConfigFiles read_config_files(const std::string& directory) {
  std::error_code unreadable;
  if (!std::filesystem::is_directory(directory, unreadable)) {
    throw UserError(fmt::format("{}: not a model directory", directory));
  }
  ConfigFiles files;
  files.directory = directory;
  files.tokenizer_config = read_if_present(files, "tokenizer_config.json");
  files.special_tokens_map = read_if_present(files, "special_tokens_map.json");
  files.added_tokens = read_if_present(files, "added_tokens.json");
  files.model_config = read_if_present(files, "config.json");
  files.sentence_config = read_if_present(files, "sentence_bert_config.json");
  return files;
}

const Json& member(const Json& json, const std::string& key) {
  static const Json null;
  const auto found = json.find(key);
  return found == json.end() ? null : *found;
}

std::optional<std::int64_t> model_max_length(const ConfigFiles& files) {
  const std::string path = files.path_of("tokenizer_config.json");
  const std::optional<double> value = io::optional_double(files.tokenizer_config, "model_max_length", path);
  if (!value || *value > kNoRealLimit) {
    return std::nullopt;
  }
  const auto length = static_cast<std::int64_t>(std::max(*value, 0.0));
  check_positive(length, "model_max_length", path);
  return length;
}

std::optional<std::int64_t> max_seq_length(const ConfigFiles& files) {
  const std::string path = files.path_of("sentence_bert_config.json");
  const auto length = io::optional_int(files.sentence_config, "max_seq_length", path);
  if (length) {
    check_positive(*length, "max_seq_length", path);
  }
  return length;
}

std::optional<bool> config_flag(const ConfigFiles& files, const std::string& key) {
  return io::optional_bool(files.tokenizer_config, key, files.path_of("tokenizer_config.json"));
}

}  // namespace stft::tokenizer
