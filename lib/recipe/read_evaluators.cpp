// The block `evaluators:`.
#include <filesystem>
#include <utility>

#include "recipe/availability.h"
#include "recipe/sections.h"

namespace stft::recipe {

namespace {

eval::TextFileConfig read_text_file(Reader& block, std::string_view key) {
  Reader reader = block.map(key);
  eval::TextFileConfig file;
  if (reader.is_absent()) {
    return file;
  }
  reader.require("path");
  file.path = reader.text("path").value_or("");
  file.id_field = reader.text("id").value_or("");
  file.text_field = reader.text("text").value_or("");
  reader.finish();
  return file;
}

// `beir:` names a directory of the usual layout; both places of the qrels are in use.
eval::EvaluatorConfig read_beir(Reader& reader, const std::string& directory, eval::EvaluatorConfig config) {
  const std::string split = reader.text("split").value_or("test");
  const std::filesystem::path root(directory);
  config.queries.path = (root / "queries.jsonl").string();
  config.corpus.path = (root / "corpus.jsonl").string();
  const std::filesystem::path in_directory = root / "qrels" / (split + ".tsv");
  const std::filesystem::path beside = root / ("qrels." + split + ".tsv");
  std::error_code ignored;
  const bool is_beside = !std::filesystem::exists(in_directory, ignored) && std::filesystem::exists(beside, ignored);
  config.qrels_path = (is_beside ? beside : in_directory).string();
  for (const std::string_view key : {"queries", "corpus", "qrels"}) {
    if (reader.child(key) != nullptr) {
      reader.diagnostics().add(reader.key_path(key), "given together with beir, which already names the files");
    }
  }
  return config;
}

eval::EvaluatorConfig read_files(Reader& reader, eval::EvaluatorConfig config) {
  for (const std::string_view key : {"queries", "corpus", "qrels"}) {
    if (reader.child(key) == nullptr) {
      reader.diagnostics().add(reader.key_path(key), "required, but missing (queries, corpus and qrels, or beir)");
    }
  }
  if (reader.child("split") != nullptr) {
    reader.diagnostics().add(reader.key_path("split"), "has a meaning only with beir");
  }
  config.queries = read_text_file(reader, "queries");
  config.corpus = read_text_file(reader, "corpus");
  Reader qrels = reader.map("qrels");
  if (!qrels.is_absent()) {
    qrels.require("path");
    config.qrels_path = qrels.text("path").value_or("");
    qrels.finish();
  }
  return config;
}

// `key` or `key`_name.
eval::PromptConfig read_prompt(Reader& reader, const std::string& key) {
  eval::PromptConfig prompt{reader.text(key), reader.text(key + "_name")};
  if (prompt.text && prompt.name) {
    reader.diagnostics().add(reader.key_path(key + "_name"), "given together with " + key + "; use one or the other");
  }
  return prompt;
}

eval::EvaluatorConfig read_retrieval(Reader& reader, eval::EvaluatorConfig config) {
  if (const std::optional<std::string> beir = reader.text("beir")) {
    config = read_beir(reader, *beir, std::move(config));
  } else if (reader.child("beir") == nullptr) {
    config = read_files(reader, std::move(config));
  }
  config.query_prompt = read_prompt(reader, "query_prompt");
  config.corpus_prompt = read_prompt(reader, "corpus_prompt");
  config.graded = reader.boolean("graded").value_or(config.graded);
  config.exclude_identical_ids = reader.boolean("exclude_identical_ids").value_or(config.exclude_identical_ids);
  return config;
}

eval::EvaluatorConfig read_similarity(Reader& reader, eval::EvaluatorConfig config) {
  reader.require("path");
  config.pairs.path = reader.text("path").value_or("");
  reader.require("columns");
  Reader columns = reader.map("columns");
  if (columns.is_absent()) {
    return config;
  }
  for (const std::string_view field : {"sentence1", "sentence2", "score"}) {
    columns.require(field);
  }
  config.pairs.sentence1 = columns.text("sentence1").value_or("");
  config.pairs.sentence2 = columns.text("sentence2").value_or("");
  config.pairs.score = columns.text("score").value_or("");
  columns.finish();
  return config;
}

std::optional<eval::EvaluatorConfig> read_evaluator(const YamlNode& node, const std::string& path,
                                                    Diagnostics& diagnostics) {
  Reader reader(&node, path, diagnostics);
  eval::EvaluatorConfig config;
  config.source = node.source.text();
  config.key_path = path;
  const std::optional<std::string> type = reader.text("type");
  if (!type.has_value()) {
    if (!reader.is_absent()) {
      reader.require("type");
    }
    return std::nullopt;
  }
  const std::string refusal = refuse_evaluator(*type);
  if (!refusal.empty()) {
    diagnostics.add(reader.key_path("type"), refusal);
    return std::nullopt;
  }
  config.type = value_of(kEvaluatorTypes, *type).value_or(config.type);
  config.name = reader.text("name").value_or(config.name);
  config.batch_size = reader.integer("batch_size", kCount);
  config.similarity_fn_names =
      reader.choice_list("similarity_fn_names", kSimilarities).value_or(config.similarity_fn_names);
  config.truncate_dim = reader.integer("truncate_dim", kCount);
  config.precision = reader.choice("precision", kPrecisions);
  config.write_csv = reader.boolean("write_csv").value_or(config.write_csv);
  config = config.type == eval::EvaluatorType::kEmbeddingSimilarity ? read_similarity(reader, std::move(config))
                                                                    : read_retrieval(reader, std::move(config));
  refuse_evaluator_options(reader, config.type);
  reader.finish();
  return config;
}

}  // namespace

std::vector<eval::EvaluatorConfig> read_evaluators(Reader& root) {
  std::vector<eval::EvaluatorConfig> evaluators;
  const YamlNode* node = root.child("evaluators");
  if (node == nullptr) {
    return evaluators;
  }
  if (node->kind != YamlKind::kList) {
    root.diagnostics().add_at(node->source, "evaluators", "expected a list, found " + describe_found(*node));
    return evaluators;
  }
  for (const Reader::Element& element : root.elements(*node, "evaluators")) {
    root.diagnostics().record_given(element.path, element.node->source);
    if (const auto config = read_evaluator(*element.node, element.path, root.diagnostics())) {
      evaluators.push_back(*config);
    }
  }
  return evaluators;
}

}  // namespace stft::recipe
