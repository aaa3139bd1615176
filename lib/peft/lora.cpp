#include "peft/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace stft::peft {
namespace {

constexpr const char* kFilePrefix = "base_model.model.";

class Attacher {
 public:
  Attacher(model::SentenceModel& model, AdapterConfig config) : model_(model) { adapter_.config = std::move(config); }

  Adapter attach(std::vector<Target> modules) {
    for (Target& module : modules) {
      add_module(std::move(module));
    }
    return std::move(adapter_);
  }

 private:
  void add_module(Target target) {
    auto& projections = model_.projections();
    const auto found = std::find_if(projections.begin(), projections.end(), [&](const model::Projection& projection) {
      return projection.name == target.name;
    });
    STFT_CHECK(found != projections.end(), "a target is a projection of the model");
    model::Projection& projection = *found;
    adapter_.modules.push_back(std::move(target));
    adapter_.projections.push_back(found - projections.begin());
    const Target& module = adapter_.modules.back();
    const AdapterConfig& config = adapter_.config;
    model::LowRankBranch branch;
    branch.scale = scale_of(module, config.use_rslora);
    branch.dropout = config.lora_dropout;
    if (projection.is_table) {
      STFT_CHECK(!config.use_dora, "tables have no magnitude");
      branch.dropout = 0;
      branch.down = add(projection, "lora_embedding_A", "", {module.r, projection.in}, AdapterTensorKind::kTableDown);
      branch.up = add(projection, "lora_embedding_B", "", {projection.out, module.r}, AdapterTensorKind::kTableUp);
      // B is read in the backward pass, where a table by itself is not.
      model_.blocks()[static_cast<size_t>(projection.block)].is_read_by_backward = true;
      projection.branch = branch;
      return;
    }
    branch.down = add(projection, "lora_A", ".weight", {module.r, projection.in}, AdapterTensorKind::kDown);
    branch.up = add(projection, "lora_B", ".weight", {projection.out, module.r}, AdapterTensorKind::kUp);
    if (config.lora_bias) {
      branch.up_bias = add(projection, "lora_B", ".bias", {projection.out}, AdapterTensorKind::kUpBias);
    }
    if (config.use_dora) {
      branch.magnitude =
          add(projection, "lora_magnitude_vector", ".weight", {projection.out}, AdapterTensorKind::kMagnitude);
    }
    projection.branch = branch;
  }

  const model::Parameter* add(const model::Projection& projection, const std::string& part, const std::string& suffix,
                              std::vector<int64_t> shape, AdapterTensorKind kind) {
    model::Parameter parameter;
    parameter.name = projection.name + "." + part + ".default" + suffix;
    parameter.state_path = model_.spec().state_path(0);
    parameter.shape = std::move(shape);
    parameter.is_table = kind == AdapterTensorKind::kTableDown;
    parameter.has_weight_decay = kind != AdapterTensorKind::kUpBias;
    const auto index = static_cast<int64_t>(model_.parameters().size());
    model_.parameters().push_back(std::move(parameter));
    model_.blocks()[static_cast<size_t>(projection.block)].parameters.push_back(index);
    adapter_.tensors.push_back({index, kind, adapter_.modules.size() - 1});
    // PEFT's files leave the adapter's name out, and the suffix of what is a parameter of its own.
    adapter_.file_keys[index] =
        kFilePrefix + projection.name + "." + part + (kind == AdapterTensorKind::kMagnitude ? "" : suffix);
    return &model_.parameters().back();
  }

  model::SentenceModel& model_;
  Adapter adapter_;
};

bool is_wrapped(const Adapter& adapter, const std::string& module) {
  return std::any_of(adapter.modules.begin(), adapter.modules.end(),
                     [&](const Target& target) { return target.name == module; });
}

// The length of the name of the module of modules_to_save that a parameter lies in, of several the outermost.
std::optional<size_t> saved_module(const Adapter& adapter, const std::string& name) {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    const std::string module = name.substr(0, dot);
    for (const std::string& entry : adapter.config.modules_to_save) {
      if (is_module_named(module, entry)) {
        return dot;
      }
    }
  }
  return std::nullopt;
}

// Freezes the transformer but for `is_trained`; what is trained gets its key.
template <typename IsTrained>
void freeze(model::SentenceModel& model, Adapter& adapter, IsTrained&& is_trained) {
  auto& table = model.parameters();
  const auto own = static_cast<int64_t>(table.size() - adapter.tensors.size());
  for (int64_t i = 0; i < own; ++i) {
    model::Parameter& parameter = table[static_cast<size_t>(i)];
    if (parameter.module != 0) {
      continue;
    }
    parameter.is_trainable = is_trained(parameter.name);
    parameter.wrapped_name = wrapped_name(adapter, parameter.name);
    if (!parameter.is_trainable) {
      continue;
    }
    const size_t dot = parameter.name.rfind('.');
    const std::string module = parameter.name.substr(0, dot);
    adapter.file_keys[i] =
        kFilePrefix + module + (is_wrapped(adapter, module) ? ".base_layer" : "") + parameter.name.substr(dot);
  }
}

void check_modules_to_save(const model::SentenceModel& model, const AdapterConfig& config) {
  for (const std::string& entry : config.modules_to_save) {
    const auto& table = model.parameters();
    const bool is_there = std::any_of(table.begin(), table.end(), [&](const model::Parameter& parameter) {
      return parameter.module == 0 && lies_in_module(parameter.name, entry);
    });
    if (!is_there) {
      std::vector<std::string> names;
      for (const model::Parameter& parameter : table) {
        if (parameter.module == 0) {
          names.push_back(parameter.name.substr(0, parameter.name.rfind('.')));
        }
      }
      names.erase(std::unique(names.begin(), names.end()), names.end());
      throw UserError(fmt::format("adapter.modules_to_save: '{}' is no module that the model uses; they are {}", entry,
                                  grouped_names(names)));
    }
  }
}

// A bias of B is added to the projection's own when it is merged.
void check_lora_bias(const model::SentenceModel& model, const std::vector<Target>& targets) {
  for (const model::Projection& projection : model.projections()) {
    const bool is_target = std::any_of(targets.begin(), targets.end(),
                                       [&](const Target& target) { return target.name == projection.name; });
    if (is_target && projection.bias == nullptr) {
      throw UserError(fmt::format("adapter.lora_bias: '{}' has no bias that it could be merged into", projection.name));
    }
  }
}

// UserError for what a table of embeddings cannot have.
void check_tables(const model::SentenceModel& model, const std::vector<Target>& targets, const AdapterConfig& config) {
  for (const model::Projection& projection : model.projections()) {
    const bool is_target = std::any_of(targets.begin(), targets.end(),
                                       [&](const Target& target) { return target.name == projection.name; });
    if (is_target && projection.is_table && !model.encoder().input_copy().empty()) {
      throw UserError(fmt::format(
          "adapter.target_modules: '{}' is not available yet: Python looks tokens up under its second name, "
          "'{}'",
          projection.name, model.encoder().input_copy()));
    }
    if (is_target && projection.is_table && config.use_dora) {
      throw UserError(
          fmt::format("adapter.use_dora: is not available yet for '{}', a table of embeddings", projection.name));
    }
  }
}

}  // namespace

std::string wrapped_name(const Adapter& adapter, const std::string& name) {
  if (const auto saved = saved_module(adapter, name)) {
    return name.substr(0, *saved) + ".modules_to_save.default" + name.substr(*saved);
  }
  const size_t dot = name.rfind('.');
  return is_wrapped(adapter, name.substr(0, dot)) ? name.substr(0, dot) + ".base_layer" + name.substr(dot) : name;
}

std::string original_name(const Adapter& adapter, const std::string& name, bool is_trained) {
  const auto saved = saved_module(adapter, name);
  if (!saved && !is_trained) {
    return wrapped_name(adapter, name);
  }
  const size_t place = saved.value_or(name.rfind('.'));
  return name.substr(0, place) + ".original_module" + name.substr(place);
}

ModuleNames module_names(const model::SentenceModel& model) {
  ModuleNames names;
  for (const model::Projection& projection : model.projections()) {
    (projection.is_table ? names.tables : names.linear).push_back(projection.name);
  }
  return names;
}

Adapter attach_lora(model::SentenceModel& model, AdapterConfig config) {
  check_modules_to_save(model, config);
  const std::string model_type = io::optional_string(model.spec().config, "model_type", "config.json").value_or("");
  TargetChoice choice = choose_targets(module_names(model), config, model_type, "adapter.target_modules");
  const std::vector<Target> targets = choice.targets;
  check_tables(model, targets, config);
  if (config.lora_bias) {
    check_lora_bias(model, targets);
  }
  Adapter adapter = Attacher(model, config).attach(std::move(choice.targets));
  adapter.unmatched = std::move(choice.unmatched);
  freeze(model, adapter, [&](const std::string& name) {
    const bool is_saved = std::any_of(config.modules_to_save.begin(), config.modules_to_save.end(),
                                      [&](const std::string& module) { return lies_in_module(name, module); });
    const bool is_bias = name.ends_with(".bias");
    const bool is_of_target = is_bias && std::any_of(targets.begin(), targets.end(), [&](const Target& target) {
                                return name == target.name + ".bias";
                              });
    return is_saved || (config.bias == LoraBias::kAll && is_bias) ||
           (config.bias == LoraBias::kLoraOnly && is_of_target);
  });
  return adapter;
}

Adapter attach_modules(model::SentenceModel& model, AdapterConfig config, std::vector<Target> modules,
                       const std::vector<std::string>& replaced) {
  Adapter adapter = Attacher(model, std::move(config)).attach(std::move(modules));
  freeze(model, adapter,
         [&](const std::string& name) { return std::find(replaced.begin(), replaced.end(), name) != replaced.end(); });
  return adapter;
}

ParameterCounts count_parameters(const model::ParameterTable& table) {
  ParameterCounts counts;
  for (const model::Parameter& parameter : table) {
    counts.all += parameter.numel();
    counts.trainable += parameter.is_trainable ? parameter.numel() : 0;
  }
  return counts;
}

}  // namespace stft::peft
