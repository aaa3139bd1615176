#include "peft/stored_adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"

namespace stft::peft {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";

// An ending of a key and where it goes.
struct Ending {
  std::string_view text;
  std::string StoredModule::*key;
  bool is_embedding = false;
};

constexpr std::array<Ending, 7> kEndings = {{{".lora_A.weight", &StoredModule::down},
                                             {".lora_B.weight", &StoredModule::up},
                                             {".lora_B.bias", &StoredModule::up_bias},
                                             {".lora_magnitude_vector", &StoredModule::magnitude},
                                             {".lora_magnitude_vector.weight", &StoredModule::magnitude},
                                             {".lora_embedding_A", &StoredModule::down, true},
                                             {".lora_embedding_B", &StoredModule::up, true}}};

class Describer {
 public:
  Describer(const TensorShapes& shapes, const std::string& path) : shapes_(shapes), path_(path) {}

  [[noreturn]] void refuse(const std::string& key, const std::string& what) const {
    throw UserError(fmt::format("{}: '{}' {}", path_, key, what));
  }

  std::string shape_text(const std::string& key) const { return fmt::format("[{}]", fmt::join(shapes_.at(key), ", ")); }

  void check_shapes(const std::string& name, const StoredModule& module) const {
    for (const auto& [key, part] : {std::pair(module.down, "A"), std::pair(module.up, "B")}) {
      if (key.empty()) {
        throw UserError(fmt::format("{}: the module '{}' has no lora_{}", path_, name, part));
      }
    }
    const auto& down = shapes_.at(module.down);
    const auto& up = shapes_.at(module.up);
    if (down.size() != 2 || up.size() != 2) {
      refuse(down.size() != 2 ? module.down : module.up, "is not a matrix");
    }
    if (down[0] != module.target.r || up[1] != module.target.r) {
      refuse(down[0] != module.target.r ? module.down : module.up,
             fmt::format("has shape {}, which does not fit the rank {} of adapter_config.json; is it one rank's part?",
                         shape_text(down[0] != module.target.r ? module.down : module.up), module.target.r));
    }
    for (const std::string& key : {module.up_bias, module.magnitude}) {
      if (!key.empty() && shapes_.at(key) != std::vector<int64_t>{up[0]}) {
        refuse(key, fmt::format("has shape {}, expected [{}]", shape_text(key), up[0]));
      }
    }
  }

  const TensorShapes& shapes_;
  const std::string& path_;
};

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Finds the model's own names for an adapter's.
class NameMatcher {
 public:
  NameMatcher(const model::SentenceModel& model, const std::vector<std::string>& allowed)
      : prefix_(model.encoder().weight_prefix()), input_copy_(model.encoder().input_copy()), allowed_(allowed) {
    for (const model::Parameter& parameter : model.parameters()) {
      if (parameter.module == 0) {
        own_.push_back(parameter.name);
      }
    }
  }

  // The model's name of a tensor; none when only its files have it.
  std::optional<std::string> own_name(const std::string& tensor) const {
    for (const std::string& name : {tensor, without_family(tensor, prefix_)}) {
      if (contains(own_, name)) {
        return name;
      }
    }
    return std::nullopt;
  }

  // The same, but UserError when nothing has it.
  std::optional<std::string> known_name(const std::string& tensor, const std::string& path) const {
    const auto own = own_name(tensor);
    if (input_copy_ == tensor || (!input_copy_.empty() && prefix_ + input_copy_ == tensor)) {
      throw UserError(
          fmt::format("{}: adapts '{}', the model's table under its second name, which is not available yet", path,
                      tensor.substr(0, tensor.rfind('.'))));
    }
    if (!own && !is_of_files(tensor)) {
      throw UserError(
          fmt::format("{}: adapts '{}', which the base model has not", path, tensor.substr(0, tensor.rfind('.'))));
    }
    return own;
  }

 private:
  bool is_of_files(const std::string& tensor) const {
    return contains(allowed_, tensor) || contains(allowed_, prefix_ + tensor) ||
           contains(allowed_, without_family(tensor, prefix_));
  }

  std::string prefix_;
  std::string input_copy_;
  const std::vector<std::string>& allowed_;
  std::vector<std::string> own_;
};

// The name of the model's projection or table for a module of the adapter; none when only the model's files have it.
std::optional<std::string> own_module(const model::SentenceModel& model, const NameMatcher& names,
                                      const StoredAdapter& stored, const std::string& name) {
  constexpr std::string_view kWeight = ".weight";
  auto own = names.known_name(name + std::string(kWeight), stored.weights_path);
  if (!own) {
    return std::nullopt;
  }
  own->resize(own->size() - kWeight.size());
  const bool is_table = stored.modules.at(name).is_embedding;
  const auto& projections = model.projections();
  if (std::none_of(projections.begin(), projections.end(), [&](const model::Projection& candidate) {
        return candidate.name == *own && candidate.is_table == is_table;
      })) {
    throw UserError(
        fmt::format("{}: the adapter of '{}' is not available yet for this kind of module", stored.weights_path, name));
  }
  return own;
}

const std::string& key_of(const StoredModule& module, AdapterTensorKind kind) {
  switch (kind) {
    case AdapterTensorKind::kDown:
    case AdapterTensorKind::kTableDown:
      return module.down;
    case AdapterTensorKind::kUp:
    case AdapterTensorKind::kTableUp:
      return module.up;
    case AdapterTensorKind::kUpBias:
      return module.up_bias;
    case AdapterTensorKind::kMagnitude:
      return module.magnitude;
  }
  throw_internal("known kind", "");
}

}  // namespace

std::string without_family(const std::string& name, const std::string& family_prefix) {
  return !family_prefix.empty() && name.starts_with(family_prefix) ? name.substr(family_prefix.size()) : name;
}

StoredAdapter describe_adapter(AdapterFileConfig file, const TensorShapes& shapes, const std::string& weights_path) {
  StoredAdapter result;
  result.file = std::move(file);
  result.weights_path = weights_path;
  const Describer describer(shapes, weights_path);
  for (const auto& [key, shape] : shapes) {
    if (!key.starts_with(kPrefix)) {
      describer.refuse(key, fmt::format("is no tensor of an adapter: names begin with '{}'", kPrefix));
    }
    if (shape.empty() || std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size == 0; })) {
      describer.refuse(
          key, fmt::format("has shape [{}]: the file holds one rank's part only, or nothing", fmt::join(shape, ", ")));
    }
    const std::string name = key.substr(kPrefix.size());
    const auto ending =
        std::find_if(kEndings.begin(), kEndings.end(), [&](const Ending& entry) { return name.ends_with(entry.text); });
    if (ending != kEndings.end()) {
      const std::string module = name.substr(0, name.size() - ending->text.size());
      StoredModule& stored = result.modules[module];
      stored.target = with_patterns(module, result.file.config);
      stored.is_embedding = stored.is_embedding || ending->is_embedding;
      if (!(stored.*(ending->key)).empty()) {
        describer.refuse(key, fmt::format("is there a second time as '{}'", stored.*(ending->key)));
      }
      stored.*(ending->key) = key;
      continue;
    }
    if (name.find("lora_") != std::string::npos || name.find('.') == std::string::npos) {
      describer.refuse(key, "is a tensor that this version does not know");
    }
    std::string base = name;
    if (const size_t wrapper = base.find(".base_layer."); wrapper != std::string::npos) {
      base.erase(wrapper, std::string_view(".base_layer").size());
    }
    if (const auto [other, is_new] = result.replaced.emplace(base, key); !is_new) {
      describer.refuse(key, fmt::format("is there a second time as '{}'", other->second));
    }
  }
  if (result.modules.empty()) {
    throw UserError(fmt::format("{}: holds no lora_A and lora_B", weights_path));
  }
  for (const auto& [name, module] : result.modules) {
    describer.check_shapes(name, module);
    if (module.is_embedding && result.file.config.use_dora) {
      throw UserError(
          fmt::format("{}: use_dora is not available yet for '{}', a table of embeddings", result.file.path, name));
    }
    if (result.file.config.lora_bias != !module.up_bias.empty() && !module.is_embedding) {
      throw UserError(fmt::format("{}: the module '{}' has {} lora_B.bias, but {} says lora_bias {}", weights_path,
                                  name, module.up_bias.empty() ? "no" : "a", result.file.path,
                                  result.file.config.lora_bias));
    }
    if (result.file.config.use_dora != !module.magnitude.empty() && !module.is_embedding) {
      throw UserError(fmt::format("{}: the module '{}' has {} lora_magnitude_vector, but {} says use_dora {}",
                                  weights_path, name, module.magnitude.empty() ? "no" : "a", result.file.path,
                                  result.file.config.use_dora));
    }
  }
  return result;
}

Adapter attach_stored(model::SentenceModel& model, const StoredAdapter& stored,
                      const std::vector<std::string>& allowed) {
  const NameMatcher names(model, allowed);
  std::vector<Target> targets;
  std::map<std::string, const StoredModule*> by_own_name;
  for (const auto& [name, module] : stored.modules) {
    if (const auto own = own_module(model, names, stored, name)) {
      by_own_name[*own] = &module;
      targets.push_back(module.target);
      targets.back().name = *own;
    }
  }
  std::vector<std::string> replaced;
  std::map<std::string, std::string> replaced_keys;
  for (const auto& [name, key] : stored.replaced) {
    if (const auto own = names.known_name(name, stored.weights_path)) {
      replaced.push_back(*own);
      replaced_keys[*own] = key;
    }
  }
  Adapter adapter = attach_modules(model, stored.file.config, std::move(targets), replaced);
  adapter.base_model = stored.file.base_model;
  adapter.revision = stored.file.revision;
  for (const AdapterTensor& tensor : adapter.tensors) {
    adapter.stored_keys[tensor.parameter] = key_of(*by_own_name.at(adapter.modules[tensor.module].name), tensor.kind);
  }
  for (const auto& [index, key] : adapter.file_keys) {
    const auto found = replaced_keys.find(model.parameters()[static_cast<size_t>(index)].name);
    if (found != replaced_keys.end()) {
      adapter.stored_keys[index] = found->second;
    }
  }
  return adapter;
}

}  // namespace stft::peft
