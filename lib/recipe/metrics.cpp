// Names of the metrics that evaluators log.
#include "recipe/metrics.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>

#include "recipe/choices.h"

namespace stft::recipe {

namespace {

std::vector<std::string> retrieval_metrics() {
  std::vector<std::string> names;
  for (const char* metric : {"accuracy", "precision", "recall"}) {
    for (const char* k : {"1", "3", "5", "10"}) {
      names.push_back(std::string(metric) + "@" + k);
    }
  }
  names.insert(names.end(), {"ndcg@10", "mrr@10", "map@100"});
  return names;
}

std::vector<std::string> similarity_metrics(const std::vector<model::Similarity>& similarities) {
  std::vector<std::string> names;
  for (const model::Similarity similarity : similarities) {
    names.push_back("pearson_" + name_of(kSimilarities, similarity));
    names.push_back("spearman_" + name_of(kSimilarities, similarity));
  }
  if (similarities.size() > 1) {
    names.insert(names.end(), {"pearson_max", "spearman_max"});
  }
  return names;
}

}  // namespace

std::vector<std::string> metric_names(const Recipe& recipe, model::Similarity default_similarity) {
  std::vector<std::string> names;
  for (const eval::EvaluatorConfig& evaluator : recipe.evaluators) {
    std::vector<model::Similarity> similarities = evaluator.similarity_fn_names;
    if (similarities.empty()) {
      similarities.push_back(recipe.model.similarity_fn_name.value_or(default_similarity));
    }
    const std::string prefix = evaluator.name.empty() ? std::string() : evaluator.name + "_";
    if (evaluator.type == eval::EvaluatorType::kEmbeddingSimilarity) {
      for (const std::string& metric : similarity_metrics(similarities)) {
        names.push_back(prefix + metric);
      }
      continue;
    }
    for (const model::Similarity similarity : similarities) {
      for (const std::string& metric : retrieval_metrics()) {
        names.push_back(prefix + name_of(kSimilarities, similarity) + "_" + metric);
      }
    }
  }
  if (!recipe.data.eval.empty()) {
    names.emplace_back("eval_loss");
  }
  for (const data::DatasetConfig& set : recipe.data.eval) {
    names.push_back("eval_" + set.name + "_loss");
  }
  return names;
}

std::optional<std::string> best_metric(const Recipe& recipe, model::Similarity default_similarity) {
  constexpr std::string_view kPrefix = "eval_";
  const checkpoint::CheckpointConfig& config = recipe.checkpoint;
  if (!config.metric_for_best_model.has_value() && !config.load_best_model_at_end &&
      config.save_strategy != checkpoint::SaveStrategy::kBest) {
    return std::nullopt;
  }
  const std::string given = config.metric_for_best_model.value_or("loss");
  std::vector<std::string> forms = {given, std::string(kPrefix) + given};
  if (given.rfind(kPrefix, 0) == 0) {
    forms.push_back(given.substr(kPrefix.size()));
  }
  const std::vector<std::string> names = metric_names(recipe, default_similarity);
  for (const std::string& form : forms) {
    if (std::find(names.begin(), names.end(), form) != names.end()) {
      return form;
    }
  }
  return std::nullopt;
}

model::Similarity similarity_of_model(const std::string& directory) {
  std::ifstream stream(directory + "/config_sentence_transformers.json");
  const nlohmann::json config = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (config.is_object() && config.contains("similarity_fn_name") && config["similarity_fn_name"].is_string()) {
    const std::string name = config["similarity_fn_name"];
    for (const Choice<model::Similarity>& choice : kSimilarities) {
      if (choice.name == name) {
        return choice.value;
      }
    }
  }
  return model::Similarity::kCosine;
}

}  // namespace stft::recipe
