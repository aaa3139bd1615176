// A model with an adapter: low-rank branches on some of its projections, the rest frozen.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/sentence_model.h"
#include "peft/peft_config.h"
#include "peft/targets.h"

namespace stft::peft {

enum class AdapterTensorKind { kDown, kUp, kUpBias, kMagnitude, kTableDown, kTableUp };

// A parameter that an adapter adds, named as in the state dict of a model with an adapter "default".
struct AdapterTensor {
  int64_t parameter = 0;  // index into the model's table
  AdapterTensorKind kind = AdapterTensorKind::kDown;
  size_t module = 0;  // index into Adapter::modules
};

struct Adapter {
  AdapterConfig config;
  std::string base_model;               // as adapter_config.json names it
  std::optional<std::string> revision;  // of a hub's base model
  std::vector<Target> modules;
  std::vector<int64_t> projections;    // of each module, its index into the model's table
  std::vector<AdapterTensor> tensors;  // in the order of the model's table, behind the base's parameters
  std::vector<std::string> unmatched;  // entries of target_modules that match no module
  // Of the trainable parameters of the transformer: their keys in PEFT's file.
  std::map<int64_t, std::string> file_keys;
  // The keys that the file it was read from has for them; empty for a new adapter.
  std::map<int64_t, std::string> stored_keys;
};

// Adds branches to `model`, which was not filled yet: their parameters join the block of their projection. Afterwards
// the transformer's own parameters are frozen but for those that `bias` and `modules_to_save` name; other modules stay
// as they are. UserError, its text beginning with the recipe's key, for targets and modules that the model has not.
Adapter attach_lora(model::SentenceModel& model, AdapterConfig config);

// The same with given modules, for an adapter from a file. `replaced`: names of base parameters that it brings along.
Adapter attach_modules(model::SentenceModel& model, AdapterConfig config, std::vector<Target> modules,
                       const std::vector<std::string>& replaced);

// A parameter of the base in the state dict of the model that PEFT wraps: a projection with a branch is "base_layer", a
// module of modules_to_save is there twice, as "original_module" and as its trained copy "modules_to_save.default".
std::string wrapped_name(const Adapter& adapter, const std::string& name);
// What the base's own value is called there: the same where nothing else is trained in its place. Of a bias that is
// trained PEFT keeps no such value; the name is made like those of modules_to_save, and nothing else has it.
std::string original_name(const Adapter& adapter, const std::string& name, bool is_trained);

// What of the model can be targeted.
ModuleNames module_names(const model::SentenceModel& model);

// Of every parameter of the model, and of those that are trained.
struct ParameterCounts {
  int64_t all = 0;
  int64_t trainable = 0;
};
ParameterCounts count_parameters(const model::ParameterTable& table);

}  // namespace stft::peft
