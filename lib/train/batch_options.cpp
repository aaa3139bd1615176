#include "train/batch_options.h"

#include <fmt/format.h>

#include "data/dataset.h"

namespace stft::train {

std::string role_prompt(const data::DatasetConfig& config, const model::ModelSpec& spec, const std::string& role) {
  const auto given = config.prompts.find(role);
  if (given == config.prompts.end()) {
    return {};
  }
  const auto named = spec.prompts.find(given->second);
  return named == spec.prompts.end() ? given->second : named->second;
}

data::BatchOptions batch_options(const data::DatasetConfig& config, const model::SentenceModel& model) {
  const model::ModelSpec& spec = model.spec();
  const auto roles = data::text_roles(config.columns);
  data::BatchOptions options;
  options.max_length = model.max_seq_length();
  options.prompts = {role_prompt(config, spec, roles[0]), role_prompt(config, spec, roles[1])};
  options.negative_prompt = role_prompt(config, spec, "negative");
  for (size_t i = 1; i <= config.columns.numbered_negatives.size(); ++i) {
    options.numbered_negative_prompts.push_back(role_prompt(config, spec, fmt::format("negative_{}", i)));
  }
  return options;
}

}  // namespace stft::train
