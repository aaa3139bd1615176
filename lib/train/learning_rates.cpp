#include "train/learning_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "peft/name_pattern.h"
#include "peft/targets.h"

namespace stft::train {
namespace {

std::vector<std::string> spellings(const model::Parameter& parameter, bool has_adapter) {
  std::vector<std::string> names = {"model." + parameter.state_path + parameter.name, parameter.name,
                                    "model." + parameter.state_name()};
  if (has_adapter && parameter.module == 0) {
    const std::string name = parameter.state_name().substr(parameter.state_path.size());
    names.insert(names.end(), {"base_model.model." + parameter.name, "base_model.model." + name});
  }
  return names;
}

[[noreturn]] void refuse_unmatched(const std::string& place, bool matches_frozen, const model::ParameterTable& table) {
  std::vector<std::string> trained;
  for (const model::Parameter& parameter : table) {
    if (parameter.is_trainable) {
      trained.push_back(parameter.name);
    }
  }
  throw UserError(fmt::format("{}: matches {}; the trained parameters are {}", place,
                              matches_frozen ? "frozen parameters only" : "no parameter",
                              peft::grouped_names(trained)));
}

peft::NamePattern compile(const std::string& pattern, const std::string& place) {
  try {
    return peft::NamePattern(pattern);
  } catch (const UserError& error) {
    throw UserError(place + ": " + error.what());
  }
}

// Sets the rate where the pattern is found.
void set_rate(const peft::NamePattern& pattern, double rate, const std::string& place, model::SentenceModel& model,
              bool has_adapter) {
  bool matches_frozen = false;
  bool matches_trained = false;
  for (model::Parameter& parameter : model.parameters()) {
    const auto names = spellings(parameter, has_adapter);
    if (std::none_of(names.begin(), names.end(), [&](const std::string& name) { return pattern.is_found_in(name); })) {
      continue;
    }
    if (!parameter.is_trainable) {
      matches_frozen = true;
      continue;
    }
    matches_trained = true;
    parameter.learning_rate = rate;
  }
  if (!matches_trained) {
    refuse_unmatched(place, matches_frozen, model.parameters());
  }
}

}  // namespace

void set_learning_rates(const recipe::Recipe& recipe, model::SentenceModel& model) {
  for (const auto& [pattern, rate] : recipe.optim.learning_rate_mapping) {
    const std::string place = recipe::where(recipe, "train.learning_rate_mapping." + pattern);
    set_rate(compile(pattern, place), rate, place, model, recipe.adapter.has_value());
  }
}

std::vector<std::string> describe_learning_rates(const model::SentenceModel& model) {
  std::map<double, std::vector<std::string>> names;
  for (const model::Parameter& parameter : model.parameters()) {
    if (parameter.is_trainable && parameter.learning_rate) {
      names[*parameter.learning_rate].push_back(parameter.name);
    }
  }
  std::vector<std::string> lines;
  for (const auto& [rate, of_rate] : names) {
    lines.push_back(of_rate.size() == 1 ? fmt::format("learning rate {:g}: {}", rate, of_rate.front())
                                        : fmt::format("learning rate {:g}: {} parameters, {} ... {}", rate,
                                                      of_rate.size(), of_rate.front(), of_rate.back()));
  }
  return lines;
}

}  // namespace stft::train
