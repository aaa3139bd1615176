// The recipe's `evaluators:` list.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace stft::eval {

enum class EvaluatorType { kInformationRetrieval, kEmbeddingSimilarity };

// What embeddings are quantized to before they are scored.
enum class Precision { kFloat32, kInt8, kUint8, kBinary, kUbinary };

// A file of texts: which fields hold the id and the text (empty: the usual names).
struct TextFileConfig {
  std::string path;
  std::string id_field;    // default: first of _id, id
  std::string text_field;  // default: text
};

// A file of scored pairs and its columns.
struct PairFileConfig {
  std::string path;
  std::string sentence1, sentence2, score;
};

// What goes before texts; at most one is set, none: the model's own choice.
struct PromptConfig {
  std::optional<std::string> text;
  std::optional<std::string> name;  // of a prompt of the model
};

struct EvaluatorConfig {
  EvaluatorType type = EvaluatorType::kInformationRetrieval;
  std::string name;
  std::optional<int64_t> batch_size;                   // default: train.per_device_eval_batch_size
  std::vector<model::Similarity> similarity_fn_names;  // empty: the model's own
  std::optional<int64_t> truncate_dim;
  std::optional<Precision> precision;  // unset: no quantization
  bool write_csv = true;
  // InformationRetrievalEvaluator
  TextFileConfig queries, corpus;
  std::string qrels_path;
  PromptConfig query_prompt, corpus_prompt;
  bool graded = false;
  bool exclude_identical_ids = false;
  // EmbeddingSimilarityEvaluator
  PairFileConfig pairs;
  std::string source;    // "file:line" of the recipe, for messages
  std::string key_path;  // "evaluators.0", for messages
};

}  // namespace stft::eval
