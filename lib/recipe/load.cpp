#include "recipe/availability.h"
#include "recipe/diagnostics.h"
#include "recipe/files.h"
#include "recipe/overrides.h"
#include "recipe/recipe.h"
#include "recipe/sections.h"
#include "recipe/validate.h"
#include "recipe/yaml_document.h"

namespace stft::recipe {

namespace {

void throw_if_any(Diagnostics& diagnostics, Purpose purpose) {
  if (purpose == Purpose::kEvaluation) {
    for (const char* section : {"run", "data.train", "checkpoint", "train", "adapter"}) {
      diagnostics.forget_under(section);
    }
  }
  diagnostics.throw_if_any();
}

// An adapter is evaluated with its base; it is trained on as adapter.path.
void refuse_adapter_as_model(const Recipe& recipe, Diagnostics& diagnostics) {
  if (peft::is_adapter_directory(recipe.model.directory())) {
    diagnostics.add("model.name_or_path", "'" + recipe.model.name_or_path +
                                              "' is an adapter; name its base model here, and the adapter as "
                                              "adapter.path");
  }
}

}  // namespace

Recipe load(const std::string& path, const std::vector<std::string>& overrides, Purpose purpose) {
  Diagnostics diagnostics(path);
  YamlNode root = read_yaml_file(path, diagnostics);
  for (const std::string& override_text : overrides) {
    apply_override(root, override_text, diagnostics);
  }
  expand_environment(root, diagnostics);
  Recipe recipe = read_recipe(root, diagnostics);
  validate(recipe, diagnostics);
  check_availability(recipe, diagnostics);
  if (purpose == Purpose::kEvaluation) {
    recipe.train.global_batch_size.reset();
    recipe.adapter.reset();  // an adapter is part of the model that is given; what its base is made of is not
  } else {
    refuse_adapter_as_model(recipe, diagnostics);
  }
  throw_if_any(diagnostics, purpose);
  recipe.origins = diagnostics.origins();
  return recipe;
}

Recipe with_snapshot(Recipe recipe, const std::string& snapshot, Purpose purpose) {
  recipe.model.snapshot = snapshot;
  Diagnostics diagnostics("the recipe");
  for (const auto& [key, origin] : recipe.origins) {
    diagnostics.record_given(key, {origin, 0});
  }
  if (const std::string problem = model_directory_problem(snapshot); !problem.empty()) {
    diagnostics.add("model.name_or_path", problem);
  }
  if (purpose == Purpose::kTraining) {
    refuse_adapter_as_model(recipe, diagnostics);
  }
  check_metric(recipe, diagnostics);
  check_prompts(recipe, diagnostics);
  throw_if_any(diagnostics, purpose);
  return recipe;
}

std::string where(const Recipe& recipe, const std::string& key_path) {
  for (std::string path = key_path; !path.empty();) {
    const auto origin = recipe.origins.find(path);
    if (origin != recipe.origins.end()) {
      return origin->second + ": " + key_path;
    }
    const std::size_t dot = path.rfind('.');
    path.resize(dot == std::string::npos ? 0 : dot);
  }
  return key_path;
}

}  // namespace stft::recipe
