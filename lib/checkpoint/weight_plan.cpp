#include "checkpoint/weight_plan.h"

#include <filesystem>
#include <set>
#include <utility>

#include "base/error.h"
#include "checkpoint/dtype.h"
#include "peft/adapter_file.h"
#include "peft/stored_adapter.h"

namespace stft::checkpoint {
namespace {

namespace fs = std::filesystem;
using io::Json;

// Carried tensors are named as sentence-transformers' state dict names them, without the family's prefix, unless that
// name is taken.
std::string carried_key(const std::string& name, const std::string& prefix, const std::string& sharded,
                        const std::set<std::string>& taken) {
  const std::string bare = !prefix.empty() && name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  return sharded + (taken.contains(sharded + bare) ? name : bare);
}

[[noreturn]] void throw_malformed(const std::string& origin, const std::string& what) {
  throw UserError(origin + ": weights: " + what);
}

PlannedTensor tensor_from_json(const Json& json, const std::string& origin) {
  PlannedTensor tensor;
  tensor.key = io::get_string(json, "key", origin);
  tensor.sharded_key = io::get_string(json, "sharded_key", origin);
  const std::string dtype = io::get_string(json, "dtype", origin);
  const auto known = io::dtype_from_name(dtype);
  if (!known) {
    throw_malformed(origin, "'" + dtype + "' is no dtype");
  }
  tensor.dtype = *known;
  tensor.is_parameter = io::get_bool(json, "trained", origin);
  const auto shape = json.find("shape");
  if (shape == json.end() || !shape->is_array()) {
    throw_malformed(origin, "'" + tensor.key + "' has no shape");
  }
  for (const Json& size : *shape) {
    if (!size.is_number_unsigned()) {
      throw_malformed(origin, "'" + tensor.key + "' has a malformed shape");
    }
    tensor.shape.push_back(size.get<int64_t>());
  }
  if (!io::tensor_bytes(tensor.dtype, tensor.shape)) {
    throw_malformed(origin, "'" + tensor.key + "' is too large");
  }
  return tensor;
}

// A file below the directory, under a name that cannot leave it.
bool is_safe_path(const std::string& text) {
  const fs::path path(text);
  if (text.empty() || path.is_absolute()) {
    return false;
  }
  for (const auto& part : path) {
    if (part == "..") {
      return false;
    }
  }
  return true;
}

// `transformer_file`: the name of module 0's.
WeightPlan finish_plan(const model::SentenceModel& model, const PretrainedWeights& weights,
                       std::map<int64_t, PlannedFile> by_module, const std::string& transformer_file) {
  WeightPlan plan;
  for (auto& [module, file] : by_module) {
    const std::string& folder = model.spec().modules[static_cast<size_t>(module)].path;
    file.module = module;
    file.path = (fs::path(folder) / (module == 0 ? transformer_file : "model.safetensors")).string();
    const TensorSource* source = weights.source_of(module);
    if (source != nullptr && file.metadata.empty()) {
      file.metadata = source->metadata();
    }
    plan.push_back(std::move(file));
  }
  return plan;
}

io::Dtype file_dtype(quant::WeightDtype dtype) {
  switch (dtype) {
    case quant::WeightDtype::kFp32:
      return io::Dtype::kF32;
    case quant::WeightDtype::kBf16:
      return io::Dtype::kBF16;
    case quant::WeightDtype::kFp16:
      return io::Dtype::kF16;
  }
  throw_internal("known dtype", "");
}

PlannedTensor planned_parameter(const model::Parameter& parameter, int64_t index, const PretrainedWeights& weights) {
  const ParameterSource& from = weights.sources()[static_cast<size_t>(index)];
  PlannedTensor tensor;
  tensor.key = from.key;
  tensor.sharded_key = sharded_key(parameter);
  tensor.dtype = from.stored ? from.stored->dtype : io::Dtype::kF32;
  tensor.shape = parameter.shape;
  tensor.is_parameter = true;
  tensor.parameter = index;
  return tensor;
}

// A tensor of the transformer's files that the model does not use; it has no sharded_key yet.
PlannedTensor carried_tensor(const std::string& name, const PretrainedWeights& weights) {
  const auto stored = weights.source_of(0)->find(name);
  PlannedTensor tensor;
  tensor.key = name;
  tensor.dtype = stored->dtype;
  tensor.shape = stored->shape;
  return tensor;
}

// By module: the adapter's file, and those of the other modules.
std::map<int64_t, PlannedFile> plan_adapter(const model::SentenceModel& model, const PretrainedWeights& weights,
                                            const peft::Adapter& adapter) {
  std::map<int64_t, PlannedFile> by_module;
  const auto& table = model.parameters();
  for (const auto& [index, key] : adapter.file_keys) {
    const model::Parameter& parameter = table[static_cast<size_t>(index)];
    PlannedTensor tensor;
    tensor.key = key;
    tensor.sharded_key = sharded_key(parameter);
    tensor.dtype = file_dtype(adapter.config.dtype);
    tensor.shape = parameter.shape;
    tensor.is_parameter = true;
    tensor.parameter = index;
    by_module[0].tensors.push_back(std::move(tensor));
  }
  by_module[0].metadata = {{"format", "pt"}};
  for (size_t i = 0; i < weights.sources().size(); ++i) {
    if (table[i].module != 0) {
      by_module[table[i].module].tensors.push_back(planned_parameter(table[i], static_cast<int64_t>(i), weights));
    }
  }
  return by_module;
}

// Every tensor of the base's transformer, under the names of the model that PEFT wrapped.
PlannedFile plan_base(const model::SentenceModel& model, const PretrainedWeights& weights,
                      const peft::Adapter& adapter) {
  PlannedFile file;
  file.path = (fs::path(kBaseFolder) / "model.safetensors").string();
  file.metadata = weights.source_of(0)->metadata();
  file.is_base = true;
  const std::string prefix = sharded_prefix(model.spec(), 0);
  std::set<std::string> taken;
  const auto add = [&](PlannedTensor tensor) {
    tensor.is_parameter = false;
    tensor.parameter = -1;
    taken.insert(tensor.sharded_key);
    file.tensors.push_back(std::move(tensor));
  };
  for (size_t i = 0; i < weights.sources().size(); ++i) {
    const model::Parameter& parameter = model.parameters()[i];
    if (parameter.module == 0) {
      PlannedTensor tensor = planned_parameter(parameter, static_cast<int64_t>(i), weights);
      tensor.sharded_key = prefix + peft::original_name(adapter, parameter.name, parameter.is_trainable);
      add(std::move(tensor));
    }
  }
  for (const std::string& name : weights.unused()) {
    PlannedTensor tensor = carried_tensor(name, weights);
    const std::string bare = peft::without_family(name, weights.prefix());
    const std::string wrapped = prefix + peft::original_name(adapter, bare, false);
    tensor.sharded_key = taken.contains(wrapped) ? prefix + name : wrapped;
    add(std::move(tensor));
  }
  return file;
}

}  // namespace

WeightPlan plan_weights(const model::SentenceModel& model, const PretrainedWeights& weights,
                        const peft::Adapter* adapter, AdapterScope scope) {
  if (adapter != nullptr) {
    WeightPlan plan = finish_plan(model, weights, plan_adapter(model, weights, *adapter), peft::kAdapterWeightsFile);
    if (scope == AdapterScope::kWithBase) {
      plan.push_back(plan_base(model, weights, *adapter));
    }
    return plan;
  }
  std::map<int64_t, PlannedFile> by_module;
  std::set<std::string> taken;
  const auto& table = model.parameters();
  for (size_t i = 0; i < table.size(); ++i) {
    PlannedTensor tensor = planned_parameter(table[i], static_cast<int64_t>(i), weights);
    taken.insert(tensor.sharded_key);
    by_module[table[i].module].tensors.push_back(std::move(tensor));
  }
  for (const std::string& name : weights.unused()) {
    PlannedTensor tensor = carried_tensor(name, weights);
    tensor.sharded_key = carried_key(name, weights.prefix(), sharded_prefix(model.spec(), 0), taken);
    taken.insert(tensor.sharded_key);
    by_module[0].tensors.push_back(std::move(tensor));
  }
  return finish_plan(model, weights, std::move(by_module), "model.safetensors");
}

Json to_json(const WeightPlan& plan) {
  Json files = Json::array();
  for (const PlannedFile& file : plan) {
    Json tensors = Json::array();
    for (const PlannedTensor& tensor : file.tensors) {
      tensors.push_back({{"key", tensor.key},
                         {"sharded_key", tensor.sharded_key},
                         {"dtype", io::dtype_name(tensor.dtype)},
                         {"shape", tensor.shape},
                         {"trained", tensor.is_parameter}});
    }
    files.push_back({{"module", file.module},
                     {"path", file.path},
                     {"base", file.is_base},
                     {"metadata", file.metadata},
                     {"tensors", std::move(tensors)}});
  }
  return files;
}

WeightPlan weight_plan_from_json(const Json& json, const std::string& origin) {
  if (!json.is_array() || json.empty()) {
    throw_malformed(origin, "expected a list of files");
  }
  WeightPlan plan;
  std::set<std::string> paths, keys;
  for (const Json& entry : json) {
    PlannedFile file;
    file.module = io::get_int(entry, "module", origin);
    file.path = io::get_string(entry, "path", origin);
    file.is_base = io::optional_bool(entry, "base", origin).value_or(false);
    const fs::path name = fs::path(file.path).filename();
    if (!is_safe_path(file.path) || (name != "model.safetensors" && name != peft::kAdapterWeightsFile) ||
        !paths.insert(file.path).second) {
      throw_malformed(origin, "'" + file.path + "' is no model.safetensors inside the directory, or is given twice");
    }
    const auto metadata = entry.find("metadata");
    if (metadata == entry.end() || !metadata->is_object()) {
      throw_malformed(origin, "'" + file.path + "' has no metadata");
    }
    for (const auto& [key, value] : metadata->items()) {
      file.metadata[key] = io::get_string(*metadata, key, origin);
    }
    const auto tensors = entry.find("tensors");
    if (tensors == entry.end() || !tensors->is_array()) {
      throw_malformed(origin, "'" + file.path + "' has no tensors");
    }
    for (const Json& tensor : *tensors) {
      file.tensors.push_back(tensor_from_json(tensor, origin));
      const PlannedTensor& planned = file.tensors.back();
      if (!planned.sharded_key.starts_with("model.") || !keys.insert(planned.sharded_key).second ||
          !keys.insert(file.path + ":" + planned.key).second) {
        throw_malformed(origin, "the tensor '" + planned.key + "' is given twice, or its sharded_key is malformed");
      }
    }
    plan.push_back(std::move(file));
  }
  return plan;
}

io::Dtype written_dtype(const PlannedTensor& tensor, WeightPrecision precision) {
  if (!is_weight_dtype(tensor.dtype)) {
    return tensor.dtype;
  }
  switch (precision) {
    case WeightPrecision::kAsInput:
      return tensor.dtype;
    case WeightPrecision::kMaster:
      return tensor.is_parameter ? io::Dtype::kF32 : tensor.dtype;
    case WeightPrecision::kFloat32:
      return io::Dtype::kF32;
    case WeightPrecision::kBFloat16:
      return io::Dtype::kBF16;
    case WeightPrecision::kFloat16:
      return io::Dtype::kF16;
  }
  throw_internal("known precision", "");
}

}  // namespace stft::checkpoint
