#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "io/checksum.h"
#include "io/file.h"
#include "io/json.h"

namespace stft::checkpoint {
namespace {

namespace fs = std::filesystem;
using io::Json;
using Ordered = nlohmann::ordered_json;

constexpr const char* kFull = "FULL_STATE_DICT";
constexpr const char* kSharded = "SHARDED_STATE_DICT";

Ordered number_or_null(double value) {
  return std::isfinite(value) ? Ordered(value) : Ordered(nullptr);
}

std::vector<ManifestFile> files_from_json(const Json& json, const std::string& origin) {
  const auto list = json.find("files");
  if (list == json.end() || !list->is_array()) {
    throw UserError(origin + ": files: expected a list");
  }
  std::vector<ManifestFile> files;
  for (const Json& entry : *list) {
    ManifestFile file;
    file.path = io::get_string(entry, "path", origin);
    const int64_t size = io::get_int(entry, "size", origin);
    file.checksum = io::get_string(entry, "checksum", origin);
    if (size < 0 || fs::path(file.path).is_absolute() || file.path.find("..") != std::string::npos) {
      throw UserError(origin + ": files: '" + file.path + "' is malformed");
    }
    file.size = static_cast<uint64_t>(size);
    files.push_back(std::move(file));
  }
  return files;
}

std::optional<Score> score_from_json(const Json& json, const std::string& origin) {
  const auto entry = json.find("score");
  if (entry == json.end() || entry->is_null()) {
    return std::nullopt;
  }
  return Score{io::get_string(*entry, "metric", origin), io::get_double(*entry, "value", origin),
               io::get_bool(*entry, "greater_is_better", origin)};
}

std::map<std::string, double> metrics_from_json(const Json& json, const std::string& origin) {
  std::map<std::string, double> metrics;
  const auto entry = json.find("metrics");
  if (entry == json.end() || !entry->is_object()) {
    return metrics;
  }
  for (const auto& [name, value] : entry->items()) {
    metrics[name] = io::optional_double(*entry, name, origin).value_or(std::nan(""));
  }
  return metrics;
}

}  // namespace

std::optional<Manifest> read_manifest(const std::string& directory) {
  const std::string path = (fs::path(directory) / kManifestFile).string();
  std::error_code error;
  if (!fs::exists(path, error)) {
    return std::nullopt;
  }
  const Json json = io::read_json_file(path);
  const int64_t version = io::get_int(json, "format_version", path);
  if (version != kFormatVersion) {
    throw UserError(
        fmt::format("{}: format_version is {}, this version of stft reads {}", path, version, kFormatVersion));
  }
  Manifest manifest;
  const std::string type = io::get_string(json, "state_dict_type", path);
  if (type != kFull && type != kSharded) {
    throw UserError(path + ": state_dict_type: found \"" + type + "\", expected " + kFull + " or " + kSharded);
  }
  manifest.state_dict_type = type == kFull ? StateDictType::kFull : StateDictType::kSharded;
  manifest.step = io::get_int(json, "step", path);
  manifest.world_size = io::get_int(json, "world_size", path);
  if (manifest.step < 0 || manifest.world_size < 1 || manifest.world_size > kMaxWorldSize) {
    throw UserError(fmt::format("{}: step {} or world_size {} is out of range (world_size: 1 to {})", path,
                                manifest.step, manifest.world_size, kMaxWorldSize));
  }
  manifest.recipe_hash = io::get_string(json, "recipe_hash", path);
  manifest.has_optimizer = io::get_bool(json, "has_optimizer", path);
  manifest.input_dtype = io::optional_string(json, "input_dtype", path);
  manifest.metrics = metrics_from_json(json, path);
  manifest.score = score_from_json(json, path);
  if (const auto base = json.find("base"); base != json.end() && !base->is_null()) {
    manifest.base = base_identity_from_json(*base, path + ": base");
  }
  manifest.files = files_from_json(json, path);
  const auto weights = json.find("weights");
  manifest.weights = weight_plan_from_json(weights == json.end() ? Json() : *weights, path);
  return manifest;
}

void write_manifest(const Manifest& manifest, const std::string& directory) {
  Ordered metrics = Ordered::object();
  for (const auto& [name, value] : manifest.metrics) {
    metrics[name] = number_or_null(value);
  }
  Ordered files = Ordered::array();
  for (const ManifestFile& file : manifest.files) {
    files.push_back({{"path", file.path}, {"size", file.size}, {"checksum", file.checksum}});
  }
  Ordered json = {{"format_version", kFormatVersion},
                  {"state_dict_type", manifest.state_dict_type == StateDictType::kFull ? kFull : kSharded},
                  {"step", manifest.step},
                  {"world_size", manifest.world_size},
                  {"recipe_hash", manifest.recipe_hash},
                  {"has_optimizer", manifest.has_optimizer},
                  {"input_dtype", manifest.input_dtype ? Ordered(*manifest.input_dtype) : Ordered(nullptr)},
                  {"metrics", metrics},
                  {"score", nullptr},
                  {"base", manifest.base ? Ordered(to_json(*manifest.base)) : Ordered(nullptr)},
                  {"weights", to_json(manifest.weights)},
                  {"files", files}};
  if (manifest.score) {
    json["score"] = {{"metric", manifest.score->metric},
                     {"value", manifest.score->value},
                     {"greater_is_better", manifest.score->greater_is_better}};
  }
  io::write_file((fs::path(directory) / kManifestFile).string(), json.dump(1) + "\n");
}

std::vector<ManifestFile> describe_files(const std::string& directory, const std::vector<std::string>& paths) {
  std::vector<ManifestFile> files;
  for (const std::string& path : paths) {
    const fs::path whole = fs::path(directory) / path;
    std::error_code error;
    const auto size = fs::file_size(whole, error);
    if (error) {
      throw SystemError("reading the size of '" + whole.string() + "': " + error.message());
    }
    files.push_back({path, size, io::file_checksum(whole.string())});
  }
  return files;
}

std::vector<std::string> file_faults(const std::string& directory, const Manifest& manifest, FileCheck check) {
  std::vector<std::string> faults;
  for (const ManifestFile& file : manifest.files) {
    const fs::path path = fs::path(directory) / file.path;
    std::error_code error;
    if (!fs::is_regular_file(path, error)) {
      faults.push_back(fmt::format("'{}' is missing", path.string()));
      continue;
    }
    const auto size = fs::file_size(path, error);
    if (error || size != file.size) {
      faults.push_back(fmt::format("'{}' has {} bytes, expected {}", path.string(), error ? 0 : size, file.size));
    } else if (check == FileCheck::kChecksums && io::file_checksum(path.string()) != file.checksum) {
      faults.push_back(fmt::format("'{}' is damaged: its checksum is not {}", path.string(), file.checksum));
    }
  }
  return faults;
}

}  // namespace stft::checkpoint
