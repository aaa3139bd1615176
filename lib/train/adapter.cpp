#include "train/adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "train/console.h"

namespace stft::train {
namespace {

// What the recipe asks for beside adapter.path must be what the adapter's own configuration says; a key that is left at
// its default asks for nothing.
void check_agrees(const recipe::Recipe& recipe, const peft::AdapterConfig& stored) {
  const peft::AdapterConfig& asked = *recipe.adapter;
  const peft::AdapterConfig defaults;
  const auto check = [&](const char* key, auto member) {
    if (asked.*member != defaults.*member && asked.*member != stored.*member) {
      throw UserError(fmt::format("{}: is not what adapter.path's {} says",
                                  recipe::where(recipe, std::string("adapter.") + key), peft::kAdapterConfigFile));
    }
  };
  check("r", &peft::AdapterConfig::r);
  check("lora_alpha", &peft::AdapterConfig::lora_alpha);
  check("rank_pattern", &peft::AdapterConfig::rank_pattern);
  check("alpha_pattern", &peft::AdapterConfig::alpha_pattern);
  check("use_rslora", &peft::AdapterConfig::use_rslora);
  check("use_dora", &peft::AdapterConfig::use_dora);
  check("lora_bias", &peft::AdapterConfig::lora_bias);
  check("bias", &peft::AdapterConfig::bias);
  check("modules_to_save", &peft::AdapterConfig::modules_to_save);
}

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
  return result;
}

}  // namespace

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
    check_agrees(recipe, result->files->description.file.config);
    check_targets_agree(recipe, model, result->adapter);
  } else {
    result = std::make_unique<RunAdapter>();
    result->adapter = peft::attach_lora(model, *recipe.adapter);
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
