#include "eval/prompts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <vector>

#include "base/error.h"

namespace stft::eval {
namespace {

// `asked_by` is where the name comes from, for the message.
std::string prompt_named(const model::ModelSpec& spec, const std::string& name, const char* asked_by) {
  std::map<std::string, std::string> prompts = spec.prompts;
  prompts.try_emplace("query");
  prompts.try_emplace("document");
  if (const auto found = prompts.find(name); found != prompts.end()) {
    return found->second;
  }
  std::vector<std::string> names;
  for (const auto& [known, prompt] : prompts) {
    names.push_back(known);
  }
  throw UserError(fmt::format("{}: {} '{}' is not a prompt of the model (prompts: {})", spec.directory, asked_by, name,
                              fmt::join(names, ", ")));
}

std::string chosen_prompt(const model::ModelSpec& spec, const PromptConfig& chosen, const char* own_name) {
  return chosen.text ? *chosen.text : prompt_named(spec, chosen.name.value_or(own_name), "the evaluator's prompt name");
}

}  // namespace

std::string encoding_prompt(const model::ModelSpec& spec, const std::optional<std::string>& name) {
  if (name) {
    return prompt_named(spec, *name, "--prompt-name");
  }
  return spec.default_prompt_name ? prompt_named(spec, *spec.default_prompt_name, "default_prompt_name")
                                  : std::string();
}

std::string query_prompt(const model::ModelSpec& spec, const PromptConfig& chosen) {
  return chosen_prompt(spec, chosen, "query");
}

std::string document_prompt(const model::ModelSpec& spec, const PromptConfig& chosen) {
  return chosen_prompt(spec, chosen, "document");
}

}  // namespace stft::eval
