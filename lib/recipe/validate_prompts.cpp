// Names of prompts: of training roles, where a text may stand instead, and of evaluators.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "recipe/files.h"
#include "recipe/nearest.h"
#include "recipe/validate.h"

namespace stft::recipe {

namespace {

// What people call a document's prompt. Such a word is never meant as the text itself.
constexpr std::array<const char*, 2> kUsualNames = {"passage", "corpus"};

// The prompts that the model directory's config_sentence_transformers.json names.
std::set<std::string> stored_prompts(const std::string& directory) {
  std::ifstream stream(directory + "/config_sentence_transformers.json");
  const nlohmann::json config = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  std::set<std::string> names;
  if (config.is_object() && config.contains("prompts") && config["prompts"].is_object()) {
    for (const auto& [name, prompt] : config["prompts"].items()) {
      names.insert(name);
    }
  }
  return names;
}

std::string list_of(const std::set<std::string>& names) {
  return join_names({names.begin(), names.end()});
}

bool looks_like_a_name(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return c < 128 && (std::isalnum(c) != 0 || c == '_' || c == '-'); });
}

// A known name that `text` is a misspelling of; empty when there is none.
std::string misspelt(const std::string& text, const std::set<std::string>& known) {
  constexpr std::size_t kShortest = 4;
  const std::string candidate = nearest(text, {known.begin(), known.end()});
  const bool is_near = text.size() >= kShortest && candidate.size() >= kShortest && edit_distance(text, candidate) <= 2;
  return is_near && looks_like_a_name(text) ? candidate : std::string();
}

void check_role(const std::string& key, const std::string& given, const std::set<std::string>& known,
                Diagnostics& diagnostics) {
  if (known.contains(given)) {
    return;
  }
  const std::string quoted = "\"" + given + "\"";
  if (const std::string name = misspelt(given, known); !name.empty()) {
    diagnostics.add(
        key, quoted + " is not a prompt of the model; did you mean " + name + "? (prompts: " + list_of(known) + ")");
  } else if (std::find(kUsualNames.begin(), kUsualNames.end(), given) != kUsualNames.end()) {
    diagnostics.add(
        key, quoted + " names a prompt that neither model.prompts nor the model has (prompts: " + list_of(known) +
                 "); add it to model.prompts, or write the text itself, as in \"" + given + ": \"");
  }
}

void check_name(const std::string& key, const std::string& given, const std::set<std::string>& known,
                Diagnostics& diagnostics) {
  if (known.contains(given)) {
    return;
  }
  const std::string candidate = nearest(given, {known.begin(), known.end()});
  diagnostics.add(key, "\"" + given + "\" is not a prompt of the model" +
                           (is_close(given, candidate) ? "; did you mean " + candidate + "?" : "") +
                           " (prompts: " + list_of(known) + ")");
}

}  // namespace

void check_prompts(const Recipe& recipe, Diagnostics& diagnostics) {
  if (diagnostics.has_problem_under("model") || !model_directory_problem(recipe.model.directory()).empty()) {
    return;  // which names there are is not known
  }
  std::set<std::string> known = stored_prompts(recipe.model.directory());
  for (const auto& [name, prompt] : recipe.model.prompts) {
    known.insert(name);
  }
  known.insert({"query", "document"});  // every model has them, if empty
  for (const auto& sets : {recipe.data.train, recipe.data.eval}) {
    for (const data::DatasetConfig& set : sets) {
      for (const auto& [role, given] : set.prompts) {
        check_role(set.key_path + ".prompts." + role, given, known, diagnostics);
      }
    }
  }
  for (const eval::EvaluatorConfig& evaluator : recipe.evaluators) {
    if (evaluator.query_prompt.name) {
      check_name(evaluator.key_path + ".query_prompt_name", *evaluator.query_prompt.name, known, diagnostics);
    }
    if (evaluator.corpus_prompt.name) {
      check_name(evaluator.key_path + ".corpus_prompt_name", *evaluator.corpus_prompt.name, known, diagnostics);
    }
  }
}

}  // namespace stft::recipe
