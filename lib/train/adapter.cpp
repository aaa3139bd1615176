#include "train/adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "train/console.h"

namespace stft::train {
namespace {

bool is_given(const recipe::Recipe& recipe, const std::string& key) {
  return recipe.origins.contains(key) || recipe.origins.lower_bound(key + ".") != recipe.origins.lower_bound(key + "/");
}

[[noreturn]] void throw_other_than_stored(const recipe::Recipe& recipe, const std::string& key) {
  throw UserError(
      fmt::format("{}: is not what adapter.path's {} says", recipe::where(recipe, key), peft::kAdapterConfigFile));
}

// Takes a key's value from the stored adapter, which is what counts; a recipe that gives another is refused.
class StoredValues {
 public:
  StoredValues(recipe::Recipe& recipe, const peft::AdapterConfig& stored) : recipe_(recipe), stored_(stored) {}

  template <typename Value>
  void take(const std::string& name, Value peft::AdapterConfig::*member) {
    const std::string key = "adapter." + name;
    Value& asked = (*recipe_.adapter).*member;
    const bool is_asked = is_given(recipe_, key) || asked != peft::AdapterConfig{}.*member;
    if (is_asked && asked != stored_.*member) {
      throw_other_than_stored(recipe_, key);
    }
    asked = stored_.*member;
  }

 private:
  recipe::Recipe& recipe_;
  const peft::AdapterConfig& stored_;
};

// The modules that the recipe's targets choose are those that the adapter has.
void check_targets_agree(const recipe::Recipe& recipe, const model::SentenceModel& model,
                         const peft::Adapter& adapter) {
  if (recipe.adapter->target_modules.empty()) {
    return;
  }
  const std::string where = recipe::where(recipe, "adapter.target_modules");
  const auto choice = peft::choose_targets(peft::module_names(model), *recipe.adapter, "", where);
  std::set<std::string> asked, there;
  for (const peft::Target& target : choice.targets) {
    asked.insert(target.name);
  }
  for (const peft::Target& target : adapter.modules) {
    there.insert(target.name);
  }
  if (asked != there) {
    throw UserError(fmt::format("{}: chooses {}, but adapter.path adapts {}", where,
                                peft::grouped_names({asked.begin(), asked.end()}),
                                peft::grouped_names({there.begin(), there.end()})));
  }
}

// What the model does not build of an adapter is not in what is saved of it.
void check_can_go_on(const RunAdapter& adapter) {
  const peft::StoredAdapter& stored = adapter.files->description;
  if (adapter.adapter.modules.empty()) {
    throw UserError(stored.weights_path + ": adapts no module that the model uses, so there is nothing to train");
  }
  std::set<std::string> used;
  for (const auto& [index, key] : adapter.adapter.stored_keys) {
    used.insert(key);
  }
  std::vector<std::string> unused;
  for (const auto& [name, module] : stored.modules) {
    if (!used.contains(module.down)) {
      unused.push_back(name);
    }
  }
  for (const auto& [name, key] : stored.replaced) {
    if (!used.contains(key)) {
      unused.push_back(name);
    }
  }
  if (!unused.empty()) {
    log::warn(fmt::format("{}: the model does not use {}: it is neither trained nor in what is saved",
                          stored.weights_path, fmt::join(unused, ", ")));
  }
}

std::unique_ptr<RunAdapter> attach_files(const std::string& directory, model::SentenceModel& model,
                                         const checkpoint::PretrainedWeights& weights,
                                         const peft::AdapterConfig* training) {
  auto result = std::make_unique<RunAdapter>();
  result->files = std::make_unique<checkpoint::AdapterFiles>(checkpoint::open_adapter(directory));
  peft::StoredAdapter& stored = result->files->description;
  if (training != nullptr) {
    stored.file.config.lora_dropout = training->lora_dropout;
    stored.file.config.dtype = training->dtype;
  }
  result->adapter = peft::attach_stored(model, stored, checkpoint::tensors_of_files(weights));
  if (training != nullptr) {
    check_can_go_on(*result);
  }
  return result;
}

// peft::attach_lora, whose messages begin with the recipe's key, with the place of that key.
peft::Adapter attach_new(const recipe::Recipe& recipe, model::SentenceModel& model) {
  peft::check_patterns(*recipe.adapter,
                       [&](const std::string& key) { return recipe::where(recipe, "adapter." + key); });
  try {
    return peft::attach_lora(model, *recipe.adapter);
  } catch (const UserError& error) {
    const std::string text = error.what();
    const std::string key = text.substr(0, text.find(':'));
    throw UserError(recipe::where(recipe, key) + text.substr(key.size()));
  }
}

}  // namespace

recipe::Recipe with_stored_adapter(recipe::Recipe recipe) {
  if (!recipe.adapter || !recipe.adapter->path || !recipe.model.base.empty()) {
    return recipe;
  }
  using Config = peft::AdapterConfig;
  const Config stored = peft::read_adapter_config(*recipe.adapter->path).config;
  StoredValues values(recipe, stored);
  values.take("r", &Config::r);
  values.take("lora_alpha", &Config::lora_alpha);
  values.take("rank_pattern", &Config::rank_pattern);
  values.take("alpha_pattern", &Config::alpha_pattern);
  values.take("use_rslora", &Config::use_rslora);
  values.take("use_dora", &Config::use_dora);
  values.take("lora_bias", &Config::lora_bias);
  values.take("bias", &Config::bias);
  values.take("init_lora_weights", &Config::init_lora_weights);
  std::sort(recipe.adapter->modules_to_save.begin(), recipe.adapter->modules_to_save.end());
  Config sorted = stored;
  std::sort(sorted.modules_to_save.begin(), sorted.modules_to_save.end());
  StoredValues(recipe, sorted).take("modules_to_save", &Config::modules_to_save);
  if (const auto causal = model::causal_of_adapter(*recipe.adapter->path)) {
    if (recipe.model.causal.value_or(*causal) != *causal) {
      throw UserError(fmt::format("{}: is not what adapter.path's sentence_bert_config.json says",
                                  recipe::where(recipe, "model.causal")));
    }
    recipe.model.causal = causal;
  }
  if (!is_given(recipe, "adapter.lora_dropout")) {
    recipe.adapter->lora_dropout = stored.lora_dropout;
  }
  const bool narrows = !recipe.adapter->exclude_modules.empty() || recipe.adapter->layers_to_transform;
  if (narrows && recipe.adapter->target_modules.empty()) {
    const bool excludes = !recipe.adapter->exclude_modules.empty();
    throw UserError(
        fmt::format("{}: has no meaning without target_modules for the adapter of adapter.path",
                    recipe::where(recipe, excludes ? "adapter.exclude_modules" : "adapter.layers_to_transform")));
  }
  return recipe;
}

std::unique_ptr<RunAdapter> attach_adapter_of(const std::string& directory, model::SentenceModel& model,
                                              const checkpoint::PretrainedWeights& weights) {
  auto result = attach_files(directory, model, weights, nullptr);
  checkpoint::keep_stored_dtypes(model, weights);
  return result;
}

std::unique_ptr<RunAdapter> attach_adapter(const recipe::Recipe& recipe, model::SentenceModel& model,
                                           const checkpoint::PretrainedWeights& weights) {
  if (!recipe.model.base.empty()) {
    return attach_adapter_of(recipe.model.directory(), model, weights);
  }
  if (!recipe.adapter) {
    return nullptr;
  }
  std::unique_ptr<RunAdapter> result;
  if (recipe.adapter->path) {
    result = attach_files(*recipe.adapter->path, model, weights, &*recipe.adapter);
    check_targets_agree(recipe, model, result->adapter);
  } else {
    result = std::make_unique<RunAdapter>();
    result->adapter = attach_new(recipe, model);
  }
  result->adapter.base_model = recipe.model.name_or_path;
  result->adapter.revision = recipe.model.snapshot.empty() ? std::nullopt : std::optional(recipe.model.revision);
  checkpoint::keep_stored_dtypes(model, weights);
  return result;
}

shard::RowSource initial_rows(const model::SentenceModel& model, shard::RowSource base, const RunAdapter* adapter,
                              uint64_t seed) {
  if (adapter == nullptr) {
    return base;
  }
  return checkpoint::with_adapter(std::move(base), {model, adapter->adapter, adapter->files.get(), seed});
}

namespace {

const char* type_name(const peft::AdapterConfig& config) {
  if (config.use_dora) {
    return "DoRA";
  }
  return config.type == peft::AdapterType::kQlora ? "QLoRA" : "LoRA";
}

}  // namespace

std::string describe(const RunAdapter& adapter, const model::SentenceModel& model) {
  const peft::AdapterConfig& config = adapter.adapter.config;
  std::vector<std::string> names;
  for (const peft::Target& target : adapter.adapter.modules) {
    names.push_back(target.name);
  }
  const auto counts = peft::count_parameters(model.parameters());
  const double percent = 100.0 * static_cast<double>(counts.trainable) / static_cast<double>(counts.all);
  return fmt::format("{} r {} on {} modules: {}; {} of {} parameters are trained ({:.4g} %)", type_name(config),
                     config.r, names.size(), peft::grouped_names(names), format_count(counts.trainable),
                     format_count(counts.all), percent);
}

}  // namespace stft::train
