// What a model directory says about itself: modules.json and its relatives (sentence-transformers 2.x to 6.2), or a
// plain Hugging Face directory. No tensors.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/json.h"
#include "model/model_config.h"

namespace stft::model {

enum class ModuleKind { kTransformer, kStaticEmbedding, kPooling, kDense, kNormalize };

struct DenseSpec {
  int64_t in_features = 0;
  int64_t out_features = 0;
  bool has_bias = true;
  DenseActivation activation = DenseActivation::kTanh;
  bool use_residual = false;             // the input is added, through a projection where the widths differ
  std::optional<uint64_t> initial_seed;  // set: not in the directory, initialised from this seed

  bool operator==(const DenseSpec&) const = default;
};

// A table of token vectors; a text's vector is their mean (sentence-transformers' StaticEmbedding, model2vec's models).
struct StaticEmbeddingSpec {
  int64_t rows = 0;
  int64_t width = 0;

  bool operator==(const StaticEmbeddingSpec&) const = default;
};

struct ModuleSpec {
  ModuleKind kind = ModuleKind::kTransformer;
  std::string path;                  // below the model directory; "" for the transformer and a table of a plain model
  std::vector<PoolingMode> pooling;  // kPooling
  int64_t pooling_input_dim = 0;     // kPooling
  bool include_prompt = true;        // kPooling
  DenseSpec dense;                   // kDense
  StaticEmbeddingSpec table;         // kStaticEmbedding

  bool operator==(const ModuleSpec&) const = default;
};

struct ModelSpec {
  std::string directory;
  std::string base;                            // where config.json and the transformer's weights are; else `directory`
  io::Json config;                             // config.json; an empty object beside a StaticEmbedding
  std::vector<ModuleSpec> modules;             // a transformer and a pooling, or a StaticEmbedding; then the rest
  std::optional<int64_t> max_seq_length;       // sentence_bert_config.json
  std::optional<double> dropout;               // replaces every dropout of the config
  std::map<std::string, std::string> prompts;  // by name; read_model_spec adds "query" and "document", empty
  std::optional<std::string> default_prompt_name;
  Similarity similarity = Similarity::kCosine;
  std::optional<int64_t> truncate_dim;  // config_sentence_transformers.json; what `encode` keeps of a vector

  int64_t embedding_dim() const;                  // of the model's output
  const ModuleSpec* find(ModuleKind kind) const;  // the first of its kind
  // What the names of a module's tensors begin with in sentence-transformers' state dict ("0.model.", "2.").
  std::string state_path(int64_t module) const;
  // The folder whose tokenizer.json a StaticEmbedding uses by itself; none: the model's directory has the tokenizer.
  std::optional<std::string> bare_tokenizer_directory() const;
};

// Of a directory whose modules.json begins with a StaticEmbedding the folder of it; nothing else is read. UserError
// when modules.json is malformed.
std::optional<std::string> static_embedding_directory(const std::string& directory);

// Whether the tokens of an adapter's model see later ones, where its sentence_bert_config.json says so (config_args:
// is_causal); the base's config.json otherwise. sentence-transformers 6.2 reads the key, but transformers takes it over
// only when the base's config.json has it too.
std::optional<bool> causal_of_adapter(const std::string& directory);

// Reads the directory; of a StaticEmbedding's file the header. `base`, unless empty, is the model that the directory's
// adapter belongs to: config.json and the transformer's weights are there, and all the rest too when the directory has
// no modules.json. UserError when a file is missing or malformed, or a module, pooling mode or family is not available.
ModelSpec read_model_spec(const std::string& directory, const std::string& base = "");

// Where such a model's other files are.
std::string files_directory(const std::string& directory, const std::string& base);

// Whether the directory holds a tokenizer of its own; and where that of such a model is: with the adapter, or else with
// its base.
bool has_tokenizer(const std::string& directory);
std::string tokenizer_directory(const std::string& directory, const std::string& base);

// The files that make up a tokenizer, as far as a directory has them.
inline constexpr std::array<const char*, 11> kTokenizerFiles = {"tokenizer.json",
                                                                "vocab.txt",
                                                                "vocab.json",
                                                                "sentencepiece.bpe.model",
                                                                "spiece.model",
                                                                "tokenizer.model",  // one of these there must be
                                                                "merges.txt",
                                                                "tokenizer_config.json",
                                                                "special_tokens_map.json",
                                                                "added_tokens.json",
                                                                "chat_template.jinja"};

// The spec with the recipe's changes: causal, pooling, include_prompt, normalize, dense, dropout, prompts,
// max_seq_length, similarity. A new Dense is initialised from `seed`.
ModelSpec with_overrides(ModelSpec spec, const ModelConfig& config, uint64_t seed);

// In the folder of a StaticEmbedding, where stft keeps num_embeddings and embedding_dim of its table.
inline constexpr const char* kTableSizesFile = "static_embedding.json";

// Names of sentence-transformers.
std::string pooling_mode_name(PoolingMode mode);
std::string dense_activation_class(DenseActivation activation);  // "torch.nn.modules.activation.Tanh"
std::string similarity_name(Similarity similarity);

}  // namespace stft::model
