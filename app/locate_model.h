// From a model's name to its directory: for the id of a hub's model that is a snapshot in the cache, downloaded first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dist/process_group.h"
#include "dist/rank_environment.h"
#include "hub/snapshot.h"
#include "recipe/recipe.h"

namespace stft::app {

// What the base of an adapter is looked for.
enum class BaseUse {
  kModel,     // to compute with, or to merge into
  kModules,   // modules and tokenizer, where the adapter's directory has none
  kTokenizer  // the tokenizer, where the adapter's directory has none
};

// What a command line or a recipe says of a model.
struct NamedModel {
  std::string name_or_path;
  std::string revision = "main";
  hub::Wanted wanted = hub::Wanted::kModel;
  BaseUse base_use = BaseUse::kModel;
};

struct LocatedModel {
  std::string directory;
  std::optional<std::string> commit;  // of a hub's model
  std::string base;                   // of an adapter's directory: where its base model lies; empty: not asked for
};

// What to ask the hub for; none when the recipe's model is a directory.
std::optional<hub::ModelRequest> hub_request(const recipe::Recipe& recipe);

// For a process on its own, or the launcher before it starts ranks. A name that is no hub id is returned as it is.
// Tells of the download on standard error. UserError and SystemError as hub::fetch_model, and for a revision of a
// directory.
LocatedModel locate_model(const NamedModel& model);

// Collective: the same for ranks: the first one downloads what its launcher has not, and all get its directory, or its
// error.
LocatedModel locate_model(const NamedModel& model, const dist::RankInfo& info, dist::ProcessGroup& world);

// The recipe with its hub's model located, its revision the commit that this came to, and what had to wait for that
// checked; unchanged when it is a directory.
recipe::Recipe with_located_model(recipe::Recipe recipe, recipe::Purpose purpose = recipe::Purpose::kTraining);
// Collective.
recipe::Recipe with_located_model(recipe::Recipe recipe, const dist::RankInfo& info, dist::ProcessGroup& world,
                                  recipe::Purpose purpose = recipe::Purpose::kTraining);

// A command line with options of ours: before a "--", behind which nothing is an option.
std::vector<std::string> with_options(std::vector<std::string> arguments, const std::vector<std::string>& options);

// The arguments of `train` or `eval` for ranks that are to read the located model: with its commit, if it has one.
std::vector<std::string> with_revision_set(std::vector<std::string> arguments, const recipe::Recipe& located);

}  // namespace stft::app
