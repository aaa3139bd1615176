#include "recipe/validate.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hub/hub_config.h"
#include "recipe/choices.h"
#include "recipe/files.h"
#include "recipe/metrics.h"
#include "recipe/nearest.h"

namespace stft::recipe {

namespace {

// Role -> column, for the roles that are mapped.
std::vector<std::pair<std::string, std::string>> mapped_roles(const data::ColumnMap& columns) {
  std::vector<std::pair<std::string, std::string>> roles = {
      {"anchor", columns.anchor}, {"positive", columns.positive}, {"negative", columns.negative},
      {"text_1", columns.text_1}, {"text_2", columns.text_2},     {"label", columns.label},
      {"score", columns.score}};
  for (std::size_t i = 0; i < columns.numbered_negatives.size(); ++i) {
    roles.emplace_back("negative_" + std::to_string(i + 1), columns.numbered_negatives[i]);
  }
  roles.erase(std::remove_if(roles.begin(), roles.end(), [](const auto& role) { return role.second.empty(); }),
              roles.end());
  return roles;
}

bool has_role(const data::ColumnMap& columns, const std::string& name) {
  const auto roles = mapped_roles(columns);
  return std::any_of(roles.begin(), roles.end(), [&](const auto& role) { return role.first == name; });
}

struct LossRoles {
  std::vector<std::string> required;
  bool has_negatives = false;

  bool allows(const std::string& role) const {
    return std::find(required.begin(), required.end(), role) != required.end() ||
           (has_negatives && role.rfind("negative", 0) == 0);
  }
};

LossRoles roles_of(loss::LossType type) {
  return type == loss::LossType::kMultipleNegativesRanking ? LossRoles{{"anchor", "positive"}, true}
                                                           : LossRoles{{"text_1", "text_2", "score"}, false};
}

// "{a: COLUMN, b: COLUMN}".
std::string example_columns(const std::vector<std::string>& roles) {
  std::string text = "{";
  for (const std::string& role : roles) {
    text.append(text.size() > 1 ? ", " : "").append(role).append(": COLUMN");
  }
  return text + "}";
}

void check_roles(const data::DatasetConfig& set, loss::LossType loss, Diagnostics& diagnostics) {
  const std::string key = set.key_path + ".columns";
  const LossRoles roles = roles_of(loss);
  if (!diagnostics.is_given(key)) {
    diagnostics.add(key,
                    "required, but missing: which column plays which role (" + example_columns(roles.required) + ")");
    return;
  }
  const std::string takes = (diagnostics.is_given("loss.type") ? "" : "the default loss ") + name_of(kLossTypes, loss) +
                            " takes " + join_names(roles.required) +
                            (roles.has_negatives ? " and, if any, negative or negative_1.." : "");
  for (const auto& [role, column] : mapped_roles(set.columns)) {
    if (!roles.allows(role)) {
      diagnostics.add(key + "." + role, "not a role of this loss; " + takes);
    }
  }
  if (!set.columns.negative.empty() && !set.columns.numbered_negatives.empty()) {
    diagnostics.add(key + ".negative", "given together with negative_1; use one or the other");
  }
  for (const std::string& role : roles.required) {
    if (!has_role(set.columns, role) && !diagnostics.has_problem_under(key)) {
      diagnostics.add(key + "." + role, "required, but missing; " + takes);
    }
  }
}

void check_dataset(const data::DatasetConfig& set, loss::LossType loss, Diagnostics& diagnostics) {
  for (const std::string& pattern : set.paths) {
    const std::vector<std::string> files = matching_files(pattern);
    if (files.empty()) {
      const bool is_pattern = pattern.find_first_of("*?[") != std::string::npos;
      diagnostics.add(set.key_path + ".path",
                      is_pattern ? "no file matches '" + pattern + "'" : "no such file '" + pattern + "'");
    }
    for (const std::string& file : files) {
      if (const std::string problem = file_problem(file); !problem.empty()) {
        diagnostics.add(set.key_path + ".path", problem);
      }
    }
  }
  if (set.paths.empty() && !diagnostics.has_problem_under(set.key_path + ".path")) {
    diagnostics.add(set.key_path + ".path", "names no file");
  }
  check_roles(set, loss, diagnostics);
  for (const auto& [role, prompt] : set.prompts) {
    if (!has_role(set.columns, role)) {
      diagnostics.add(set.key_path + ".prompts." + role, "a prompt for a role that columns does not map");
    }
  }
}

void check_evaluator_file(const std::string& key, const std::string& path, Diagnostics& diagnostics) {
  if (path.empty() || diagnostics.has_problem_under(key)) {
    return;  // its problem is told already
  }
  if (const std::string problem = file_problem(path); !problem.empty()) {
    diagnostics.add(key, problem);
  }
}

void check_evaluators(const Recipe& recipe, Diagnostics& diagnostics) {
  std::set<std::string> names;
  for (const eval::EvaluatorConfig& evaluator : recipe.evaluators) {
    const std::string& key = evaluator.key_path;
    if (evaluator.name.find('/') != std::string::npos) {
      diagnostics.add(key + ".name",
                      "may not contain \"/\", since files are named after it, found \"" + evaluator.name + "\"");
    }
    if (!names.insert(evaluator.name).second) {
      diagnostics.add(key + ".name", evaluator.name.empty()
                                         ? "a second evaluator without a name; their metrics would have equal names"
                                         : "a second evaluator is named \"" + evaluator.name + "\"");
    }
    if (evaluator.type == eval::EvaluatorType::kEmbeddingSimilarity) {
      check_evaluator_file(key + ".path", evaluator.pairs.path, diagnostics);
      continue;
    }
    const bool is_beir = diagnostics.is_given(key + ".beir");
    check_evaluator_file(is_beir ? key + ".beir" : key + ".queries.path", evaluator.queries.path, diagnostics);
    check_evaluator_file(is_beir ? key + ".beir" : key + ".corpus.path", evaluator.corpus.path, diagnostics);
    check_evaluator_file(is_beir ? key + ".beir" : key + ".qrels.path", evaluator.qrels_path, diagnostics);
  }
  if (!recipe.evaluators.empty() || !recipe.data.eval.empty() || diagnostics.is_given("evaluators.0")) {
    return;
  }
  if (recipe.train.eval_strategy != EvalStrategy::kNo) {
    diagnostics.add("train.eval_strategy", "there is nothing to evaluate: evaluators and data.eval are empty");
  }
  if (recipe.train.eval_on_start) {
    diagnostics.add("train.eval_on_start", "there is nothing to evaluate: evaluators and data.eval are empty");
  }
}

void check_eval_sets(const std::vector<data::DatasetConfig>& sets, Diagnostics& diagnostics) {
  std::set<std::string> names;
  for (const data::DatasetConfig& set : sets) {
    if (!names.insert(set.name).second) {
      diagnostics.add(set.key_path + ".name", "a second data set of data.eval is named \"" + set.name +
                                                  "\"; their losses would have equal names");
    }
  }
}

void check_sharding(const shard::ShardConfig& sharding, Diagnostics& diagnostics) {
  using shard::Strategy;
  const std::string key = "sharding.reshard_after_forward";
  const bool is_true = sharding.reshard_after_forward == true || sharding.reshard_after_forward_size.has_value();
  const bool is_false = sharding.reshard_after_forward == false;
  const bool is_given = is_true || is_false;
  if (sharding.strategy == Strategy::kNoShard && is_given) {
    diagnostics.add(key, "contradicts strategy no_shard, which has nothing to reshard");
  }
  if (sharding.strategy == Strategy::kAuto && is_given) {
    diagnostics.add(key, "contradicts strategy auto, which chooses it");
  }
  if (sharding.strategy == Strategy::kShardGradOp && is_true) {
    diagnostics.add(key, "contradicts strategy shard_grad_op, which keeps parameters after the forward");
  }
  if (sharding.strategy == Strategy::kFullShard && is_false && diagnostics.is_given("sharding.strategy")) {
    diagnostics.add(key, "contradicts strategy full_shard; false is shard_grad_op");
  }
  if (sharding.reshard_after_forward_size == 1) {
    diagnostics.add(key, "1 would keep every parameter; that is strategy shard_grad_op");
  }
  if (sharding.hybrid_shard_size && sharding.strategy != Strategy::kHybridShard) {
    diagnostics.add("sharding.hybrid_shard_size", "belongs to strategy hybrid_shard");
  }
}

void check_revision(const model::ModelConfig& model, Diagnostics& diagnostics) {
  const std::string key = "model.revision";
  if (!hub::is_revision(model.revision)) {
    diagnostics.add(key, "\"" + model.revision.substr(0, 80) + "\" is no branch, tag or commit");
  } else if (model.revision != model::ModelConfig{}.revision && !is_hub_model(model.name_or_path)) {
    diagnostics.add(key, "is for the id of a hub's model; '" + model.name_or_path + "' is none");
  }
}

void check_metric_of_model(const Recipe& recipe, Diagnostics& diagnostics) {
  const std::string key = "checkpoint.metric_for_best_model";
  const model::Similarity similarity = similarity_of_model(recipe.model.directory());
  if (best_metric(recipe, similarity).has_value()) {
    return;
  }
  if (!recipe.checkpoint.metric_for_best_model.has_value()) {
    if (recipe.checkpoint.load_best_model_at_end ||
        recipe.checkpoint.save_strategy == checkpoint::SaveStrategy::kBest) {
      diagnostics.add(key, "required for a best checkpoint, since data.eval is empty and its default is the loss");
    }
    return;
  }
  const std::string& metric = *recipe.checkpoint.metric_for_best_model;
  const std::vector<std::string> names = metric_names(recipe, similarity);
  constexpr std::string_view kPrefix = "eval_";
  const std::string bare = metric.rfind(kPrefix, 0) == 0 ? metric.substr(kPrefix.size()) : metric;
  const std::string shown = metric.size() > 80 ? metric.substr(0, 80) + "..." : metric;
  if (names.empty()) {
    diagnostics.add(key, "\"" + shown + "\" is not a metric of this run: evaluators and data.eval are empty");
    return;
  }
  const std::string suggestion = nearest(bare, names);
  diagnostics.add(key, "\"" + shown + "\" is not a metric of this run" +
                           (suggestion.empty() ? "" : "; did you mean " + suggestion + "?") + " The metrics are " +
                           join_names(names));
}

}  // namespace

void check_metric(const Recipe& recipe, Diagnostics& diagnostics) {
  const bool is_unsure = diagnostics.has_problem_under("evaluators") || diagnostics.has_problem_under("model") ||
                         diagnostics.has_problem_under("data.eval");
  const bool has_files = !recipe.model.snapshot.empty() || !is_hub_model(recipe.model.name_or_path);
  if (!is_unsure && has_files) {
    check_metric_of_model(recipe, diagnostics);
  }
}

void validate(const Recipe& recipe, Diagnostics& diagnostics) {
  if (!recipe.model.name_or_path.empty()) {
    if (const std::string problem = model_problem(recipe.model.name_or_path); !problem.empty()) {
      diagnostics.add("model.name_or_path", problem);
    }
    check_revision(recipe.model, diagnostics);
  } else if (!diagnostics.has_problem_under("model.name_or_path")) {
    diagnostics.add("model.name_or_path", "must not be empty");
  }
  if (recipe.run.output_dir.empty() && !diagnostics.has_problem_under("run.output_dir")) {
    diagnostics.add("run.output_dir", "must not be empty");
  }
  if (!diagnostics.has_problem_under("loss.type")) {
    for (const auto& sets : {recipe.data.train, recipe.data.eval}) {
      for (const data::DatasetConfig& set : sets) {
        check_dataset(set, recipe.loss.type, diagnostics);
      }
    }
  }
  check_evaluators(recipe, diagnostics);
  check_eval_sets(recipe.data.eval, diagnostics);
  check_sharding(recipe.sharding, diagnostics);
  check_metric(recipe, diagnostics);
  check_prompts(recipe, diagnostics);
  check_adapter(recipe, diagnostics);
  check_checkpoint(recipe, diagnostics);
}

}  // namespace stft::recipe
