#include "io/weights_index.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "base/error.h"
#include "io/json.h"

namespace stft::io {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

std::string join(const std::string& directory, const std::string& name) {
  return (std::filesystem::path(directory) / name).string();
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

[[noreturn]] void throw_nothing_to_open(const std::string& directory) {
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (exists(join(directory, name))) {
      throw UserError(fmt::format("{}: only safetensors weights are read; save the model as {}", join(directory, name),
                                  kSingleFile));
    }
  }
  throw UserError(fmt::format("no {} or {} in '{}'", kSingleFile, kIndexFile, directory));
}

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

// tensor name -> file name, as the index gives it.
std::map<std::string, std::string> read_weight_map(const std::string& path) {
  const Json index = read_json_file(path);
  if (!index.is_object()) throw UserError(fmt::format("{}: {}, not an object", path, json_type_name(index)));
  const auto found = index.find("weight_map");
  if (found == index.end() || !found->is_object()) {
    throw UserError(fmt::format("{}: key 'weight_map' is {}, it must be an object", path,
                                found == index.end() ? "missing" : json_type_name(*found)));
  }
  std::map<std::string, std::string> weight_map;
  for (const auto& [tensor, file] : found->items()) {
    if (!file.is_string()) {
      throw UserError(fmt::format("{}: weight_map '{}' is {}, not a file name", path, tensor, json_type_name(file)));
    }
    const auto& name = file.get_ref<const std::string&>();
    if (!is_plain_file_name(name)) {
      throw UserError(fmt::format("{}: weight_map '{}': '{}' is not the name of a file beside it", path, tensor, name));
    }
    weight_map.emplace(tensor, name);
  }
  return weight_map;
}

}  // namespace

bool ModelWeights::exist_in(const std::string& directory) {
  return exists(join(directory, kSingleFile)) || exists(join(directory, kIndexFile));
}

ModelWeights ModelWeights::open(const std::string& directory) {
  ModelWeights weights;
  weights.path_ = join(directory, kSingleFile);
  if (!exists(weights.path_)) {
    weights.path_ = join(directory, kIndexFile);
    if (!exists(weights.path_)) throw_nothing_to_open(directory);
    weights.add_shards(directory);
    return weights;
  }
  return open_file(weights.path_);
}

ModelWeights ModelWeights::open_file(const std::string& path) {
  ModelWeights weights;
  weights.path_ = path;
  weights.files_.push_back(SafetensorsFile::open(path));
  for (const TensorInfo& info : weights.files_.front().tensors()) {
    weights.tensors_.emplace(info.name, StoredTensor{&weights.files_.front(), &info});
  }
  return weights;
}

void ModelWeights::add_shards(const std::string& directory) {
  const std::map<std::string, std::string> weight_map = read_weight_map(path_);
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  files_.reserve(names.size());  // the addresses below must hold
  std::map<std::string, const SafetensorsFile*> opened;
  for (const std::string& name : names) {
    const std::string path = join(directory, name);
    if (!exists(path)) throw UserError(fmt::format("{}: its file '{}' does not exist", path_, name));
    files_.push_back(SafetensorsFile::open(path));
    opened.emplace(name, &files_.back());
  }
  for (const auto& [tensor, name] : weight_map) {
    const SafetensorsFile* file = opened.at(name);
    const TensorInfo* info = file->find(tensor);
    if (info == nullptr) throw UserError(fmt::format("{}: '{}' has no tensor '{}'", path_, name, tensor));
    tensors_.emplace(tensor, StoredTensor{file, info});
  }
}

std::optional<StoredTensor> ModelWeights::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return std::nullopt;
  return found->second;
}

}  // namespace stft::io
