#include "recipe/availability.h"
#include "recipe/diagnostics.h"
#include "recipe/overrides.h"
#include "recipe/recipe.h"
#include "recipe/sections.h"
#include "recipe/validate.h"
#include "recipe/yaml_document.h"

namespace stft::recipe {

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
    for (const char* section : {"run", "data.train", "checkpoint", "train"}) {
      diagnostics.forget_under(section);
    }
    recipe.train.global_batch_size.reset();
  }
  diagnostics.throw_if_any();
  recipe.origins = diagnostics.origins();
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
