#include "train/prompt_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "data/prompt.h"
#include "eval/prompts.h"
#include "io/json.h"
#include "train/batch_options.h"

namespace stft::train {
namespace {

// Texts of one kind and what goes before them.
struct Use {
  std::string texts;
  std::string prompt;
};

struct Place {
  std::string name;
  std::vector<Use> uses;
};

std::string quoted(const std::string& text) {
  return io::Json(text).dump(-1, ' ', false, io::Json::error_handler_t::replace);
}

Place place_of(const char* kind, const data::DatasetConfig& set, const model::ModelSpec& spec) {
  Place place{fmt::format("{} '{}'", kind, set.name), {}};
  const auto first_two = data::text_roles(set.columns);
  std::vector<std::string> roles(first_two.begin(), first_two.end());
  if (!set.columns.negative.empty()) {
    roles.emplace_back("negative");
  }
  for (size_t i = 1; i <= set.columns.numbered_negatives.size(); ++i) {
    roles.push_back(fmt::format("negative_{}", i));
  }
  for (const std::string& role : roles) {
    place.uses.push_back({role, role_prompt(set, spec, role)});
  }
  return place;
}

Place place_of(const eval::EvaluatorConfig& config, const model::ModelSpec& spec) {
  Place place{fmt::format("evaluator '{}'", config.name), {}};
  if (config.type == eval::EvaluatorType::kEmbeddingSimilarity) {
    place.uses = {{"sentences", eval::encoding_prompt(spec, {})}};
  } else {
    place.uses = {{"queries", eval::query_prompt(spec, config.query_prompt)},
                  {"corpus", eval::document_prompt(spec, config.corpus_prompt)}};
  }
  return place;
}

// Of roles that ask for a prompt by name and get none, though the recipe does not say that it is empty.
void warn_of_empty(const recipe::Recipe& recipe, const std::vector<data::DatasetConfig>& sets,
                   const model::ModelSpec& spec, eval::DataNotes& notes) {
  for (const data::DatasetConfig& set : sets) {
    for (const auto& [role, name] : set.prompts) {
      if (!name.empty() && !recipe.model.prompts.contains(name) && role_prompt(set, spec, role).empty()) {
        notes.warnings.push_back(
            fmt::format("data '{}': {} has the prompt '{}', which is empty: the model has no text "
                        "for it, and neither has model.prompts",
                        set.name, role, name));
      }
    }
  }
}

std::set<std::string> prompts_of(const std::vector<Place>& places) {
  std::set<std::string> prompts;
  for (const Place& place : places) {
    for (const Use& use : place.uses) {
      prompts.insert(use.prompt);
    }
  }
  return prompts;
}

void warn_of_skew(const std::vector<Place>& places, const std::set<std::string>& elsewhere, const char* what,
                  eval::DataNotes& notes) {
  for (const Place& place : places) {
    for (const Use& use : place.uses) {
      if (!use.prompt.empty() && !elsewhere.contains(use.prompt)) {
        notes.warnings.push_back(
            fmt::format("{}: the prompt of {} is {}, which {}", place.name, use.texts, quoted(use.prompt), what));
      }
    }
  }
}

}  // namespace

eval::DataNotes prompt_notes(const recipe::Recipe& recipe, const model::ModelSpec& spec,
                             const tokenizer::Tokenizer& tokenizer) {
  std::vector<Place> trained;
  std::vector<Place> evaluated;
  for (const data::DatasetConfig& set : recipe.data.train) {
    trained.push_back(place_of("training data", set, spec));
  }
  for (const data::DatasetConfig& set : recipe.data.eval) {
    evaluated.push_back(place_of("evaluation data", set, spec));
  }
  for (const eval::EvaluatorConfig& evaluator : recipe.evaluators) {
    evaluated.push_back(place_of(evaluator, spec));
  }
  eval::DataNotes notes;
  warn_of_empty(recipe, recipe.data.train, spec, notes);
  warn_of_empty(recipe, recipe.data.eval, spec, notes);
  const auto in_training = prompts_of(trained);
  const auto in_evaluation = prompts_of(evaluated);
  const auto is_empty = [](const std::string& prompt) { return prompt.empty(); };
  if (std::all_of(in_training.begin(), in_training.end(), is_empty) &&
      std::all_of(in_evaluation.begin(), in_evaluation.end(), is_empty)) {
    notes.infos.emplace_back("prompts: none");
    return notes;
  }
  for (const auto* places : {&trained, &evaluated}) {
    for (const Place& place : *places) {
      std::vector<std::string> uses;
      for (const Use& use : place.uses) {
        const int64_t tokens = data::measure_prompt(use.prompt, tokenizer, 0).length;
        uses.push_back(use.prompt.empty() ? use.texts + " none"
                                          : fmt::format("{} {} ({} tokens)", use.texts, quoted(use.prompt), tokens));
      }
      notes.infos.push_back(fmt::format("prompts of {}: {}", place.name, fmt::join(uses, ", ")));
    }
  }
  const model::ModuleSpec* pooling = spec.find(model::ModuleKind::kPooling);
  if (pooling != nullptr && !pooling->include_prompt) {
    notes.infos.emplace_back("prompts: pooling leaves their tokens out (include_prompt: false)");
  }
  if (!trained.empty() && !evaluated.empty()) {
    warn_of_skew(trained, in_evaluation, "no evaluation uses", notes);
    warn_of_skew(evaluated, in_training, "training does not use", notes);
  }
  return notes;
}

}  // namespace stft::train
