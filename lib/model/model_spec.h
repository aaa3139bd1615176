// What a model directory says about itself: modules.json and its relatives (sentence-transformers 2.x to 6.2), or a
// plain Hugging Face directory. No tensors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/json.h"
#include "model/model_config.h"

namespace stft::model {

enum class ModuleKind { kTransformer, kPooling, kDense, kNormalize };

struct DenseSpec {
  int64_t in_features = 0;
  int64_t out_features = 0;
  bool has_bias = true;
  DenseActivation activation = DenseActivation::kTanh;
  std::optional<uint64_t> initial_seed;  // set: not in the directory, initialised from this seed

  bool operator==(const DenseSpec&) const = default;
};

struct ModuleSpec {
  ModuleKind kind = ModuleKind::kTransformer;
  std::string path;                  // below the model directory; "" for the transformer
  std::vector<PoolingMode> pooling;  // kPooling
  int64_t pooling_input_dim = 0;     // kPooling
  bool include_prompt = true;        // kPooling
  DenseSpec dense;                   // kDense

  bool operator==(const ModuleSpec&) const = default;
};

struct ModelSpec {
  std::string directory;
  std::string base;                            // where config.json and the transformer's weights are; else `directory`
  io::Json config;                             // config.json
  std::vector<ModuleSpec> modules;             // the transformer first, then a pooling, then the rest
  std::optional<int64_t> max_seq_length;       // sentence_bert_config.json
  std::optional<double> dropout;               // replaces every dropout of the config
  std::map<std::string, std::string> prompts;  // by name; read_model_spec adds "query" and "document", empty
  std::optional<std::string> default_prompt_name;
  Similarity similarity = Similarity::kCosine;
  std::optional<int64_t> truncate_dim;  // config_sentence_transformers.json; what `encode` keeps of a vector

  int64_t embedding_dim() const;                  // of the model's output
  const ModuleSpec* find(ModuleKind kind) const;  // the first of its kind
};

// Reads the directory. `base`, unless empty, is the model that the directory's adapter belongs to: config.json and the
// transformer's weights are there, and all the rest too when the directory has no modules.json. UserError when a file
// is missing or malformed, or a module, pooling mode or family is not available.
ModelSpec read_model_spec(const std::string& directory, const std::string& base = "");

// Where such a model's other files are, the tokenizer's among them.
std::string files_directory(const std::string& directory, const std::string& base);

// The spec with the recipe's changes: causal, pooling, include_prompt, normalize, dense, dropout, prompts,
// max_seq_length, similarity. A new Dense is initialised from `seed`.
ModelSpec with_overrides(ModelSpec spec, const ModelConfig& config, uint64_t seed);

// Names of sentence-transformers.
std::string pooling_mode_name(PoolingMode mode);
std::string similarity_name(Similarity similarity);

}  // namespace stft::model
