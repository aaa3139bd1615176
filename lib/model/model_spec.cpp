#include "model/model_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "model/encoder.h"
#include "model/module_files.h"

namespace stft::model {
namespace {

using io::Json;

constexpr std::array<std::pair<Similarity, const char*>, 4> kSimilarityNames = {{
    {Similarity::kCosine, "cosine"},
    {Similarity::kDot, "dot"},
    {Similarity::kEuclidean, "euclidean"},
    {Similarity::kManhattan, "manhattan"},
}};

Similarity similarity_from_name(const std::string& name, const std::string& origin) {
  for (const auto& [similarity, known] : kSimilarityNames) {
    if (name == known) {
      return similarity;
    }
  }
  throw UserError(fmt::format("{}: unknown similarity_fn_name \"{}\"", origin, name));
}

void read_sentence_config(ModelSpec& spec) {
  const std::string file = path_in(spec.directory, "config_sentence_transformers.json");
  if (!is_file(file)) {
    return;
  }
  const Json config = io::read_json_file(file);
  if (config.contains("prompts") && config.at("prompts").is_object()) {
    for (const auto& [name, prompt] : config.at("prompts").items()) {
      spec.prompts[name] = io::optional_string(config.at("prompts"), name, file).value_or("");
    }
  }
  spec.default_prompt_name = io::optional_string(config, "default_prompt_name", file);
  spec.truncate_dim = io::optional_int(config, "truncate_dim", file);
  if (spec.truncate_dim && *spec.truncate_dim < 1) {
    throw UserError(fmt::format("{}: truncate_dim: expected a positive number, found {}", file, *spec.truncate_dim));
  }
  if (const auto name = io::optional_string(config, "similarity_fn_name", file)) {
    spec.similarity = similarity_from_name(*name, file);
  }
}

// The width of what the first `count` modules give.
int64_t dim_of(const std::vector<ModuleSpec>& modules, size_t count) {
  int64_t dim = 0;
  for (size_t i = 0; i < count; ++i) {
    const ModuleSpec& module = modules[i];
    if (module.kind == ModuleKind::kStaticEmbedding) {
      dim = module.table.width;
    } else if (module.kind == ModuleKind::kPooling) {
      dim = module.pooling_input_dim * static_cast<int64_t>(module.pooling.size());
    } else if (module.kind == ModuleKind::kDense) {
      dim = module.dense.out_features;
    }
  }
  return dim;
}

void check_beginning(const ModelSpec& spec, const std::string& origin) {
  if (spec.modules[0].kind == ModuleKind::kStaticEmbedding) {
    return;
  }
  if (spec.modules.size() < 2 || spec.modules[0].kind != ModuleKind::kTransformer ||
      spec.modules[1].kind != ModuleKind::kPooling) {
    throw UserError(origin +
                    ": expected a Transformer and a Pooling, or a StaticEmbedding, then Dense or Normalize modules");
  }
  const int64_t hidden = configured_hidden_size(spec.config, path_in(spec.directory, "config.json"));
  if (spec.modules[1].pooling_input_dim != hidden) {
    throw UserError(fmt::format("{}: pooling expects vectors of {}, but config.json's hidden_size is {}",
                                path_in(spec.directory, spec.modules[1].path + "/config.json"),
                                spec.modules[1].pooling_input_dim, hidden));
  }
}

// Every Dense takes what the modules before it give, and one pooling comes before anything that works on vectors.
void check_chain(const ModelSpec& spec) {
  const std::string origin = path_in(spec.directory, "modules.json");
  if (spec.modules.empty()) {
    throw UserError(origin + ": an empty list of modules");
  }
  check_beginning(spec, origin);
  const size_t first = spec.modules[0].kind == ModuleKind::kStaticEmbedding ? 1 : 2;
  int64_t dim = dim_of(spec.modules, first);
  for (size_t i = first; i < spec.modules.size(); ++i) {
    const ModuleSpec& module = spec.modules[i];
    if (module.kind != ModuleKind::kDense && module.kind != ModuleKind::kNormalize) {
      throw UserError(origin + ": a second Transformer, StaticEmbedding or Pooling is not available yet");
    }
    if (module.kind == ModuleKind::kDense) {
      if (module.dense.in_features != dim) {
        throw UserError(fmt::format("{}: {} expects in_features {}, but gets vectors of {}", origin, module.path,
                                    module.dense.in_features, dim));
      }
      dim = module.dense.out_features;
    }
  }
}

// Of a directory without modules.json, as sentence-transformers chooses it.
ModuleSpec default_pooling(const Json& config, const std::string& origin) {
  const auto architectures = config.find("architectures");
  const bool is_causal_head = architectures != config.end() && architectures->is_array() && !architectures->empty() &&
                              architectures->front().is_string() &&
                              architectures->front().get<std::string>().ends_with("ForCausalLM") &&
                              io::optional_bool(config, "is_causal", origin).value_or(true);
  ModuleSpec module;
  module.kind = ModuleKind::kPooling;
  module.path = "1_Pooling";
  module.pooling = {is_causal_head ? PoolingMode::kLastToken : PoolingMode::kMean};
  module.pooling_input_dim = configured_hidden_size(config, origin);
  return module;
}

void set_causal(ModelSpec& spec, bool is_causal) {
  if (!is_decoder_family(spec.config)) {
    if (is_causal) {
      throw UserError("model.causal: true: the model is bidirectional");
    }
    return;
  }
  // EmbeddingGemma has a switch of its own, with another window.
  if (io::optional_bool(spec.config, "use_bidirectional_attention", path_in(spec.directory, "config.json"))
          .value_or(false)) {
    if (is_causal) {
      throw UserError("model.causal: true: the model is bidirectional (use_bidirectional_attention)");
    }
    return;
  }
  spec.config["is_causal"] = is_causal;
  if (!is_file(path_in(spec.directory, "modules.json"))) {
    spec.modules[1] = default_pooling(spec.config, path_in(spec.directory, "config.json"));
  }
}

void override_pooling(ModelSpec& spec, const ModelConfig& config) {
  if (spec.modules[0].kind != ModuleKind::kStaticEmbedding) {
    ModuleSpec& pooling = spec.modules[1];
    pooling.pooling = config.pooling.empty() ? pooling.pooling : config.pooling;
    pooling.include_prompt = config.include_prompt.value_or(pooling.include_prompt);
    return;
  }
  if (config.dropout) {
    throw UserError("model.dropout: the model is a StaticEmbedding, which has none");
  }
  const char* key = !config.pooling.empty()          ? "pooling"
                    : config.include_prompt == false ? "include_prompt: false"
                    : config.max_seq_length          ? "max_seq_length"
                                                     : nullptr;
  if (key != nullptr) {
    throw UserError(fmt::format("model.{}: the model is a StaticEmbedding, which takes the mean of all tokens", key));
  }
}

void remove_kind(std::vector<ModuleSpec>& modules, ModuleKind kind) {
  std::erase_if(modules, [&](const ModuleSpec& module) { return module.kind == kind; });
}

}  // namespace

std::string similarity_name(Similarity similarity) {
  for (const auto& [known, name] : kSimilarityNames) {
    if (known == similarity) {
      return name;
    }
  }
  throw_internal("known similarity", "");
}

int64_t ModelSpec::embedding_dim() const {
  return dim_of(modules, modules.size());
}

const ModuleSpec* ModelSpec::find(ModuleKind kind) const {
  for (const ModuleSpec& module : modules) {
    if (module.kind == kind) {
      return &module;
    }
  }
  return nullptr;
}

std::string ModelSpec::state_path(int64_t module) const {
  const bool is_wrapped = modules.at(static_cast<size_t>(module)).kind == ModuleKind::kTransformer;
  return std::to_string(module) + (is_wrapped ? ".model." : ".");
}

std::optional<std::string> ModelSpec::bare_tokenizer_directory() const {
  return modules.front().kind == ModuleKind::kStaticEmbedding ? std::optional(path_in(directory, modules.front().path))
                                                              : std::nullopt;
}

std::optional<std::string> static_embedding_directory(const std::string& directory) {
  const std::string file = path_in(directory, "modules.json");
  if (!is_file(file)) {
    return std::nullopt;
  }
  const Json modules = read_modules(file);
  if (modules.empty()) {
    return std::nullopt;
  }
  const std::string type = io::get_string(modules.front(), "type", file);
  const bool is_static = type.starts_with("sentence_transformers.") && type.ends_with(".StaticEmbedding");
  return is_static ? std::optional(path_in(directory, module_path(modules.front(), file))) : std::nullopt;
}

std::string files_directory(const std::string& directory, const std::string& base) {
  return base.empty() || is_file(path_in(directory, "modules.json")) ? directory : base;
}

std::optional<bool> causal_of_adapter(const std::string& directory) {
  const std::string file = path_in(directory, "sentence_bert_config.json");
  if (!is_file(file)) {
    return std::nullopt;
  }
  const Json config = io::read_json_file(file);
  for (const char* key : {"config_kwargs", "config_args"}) {
    const auto found = config.find(key);
    if (found != config.end() && found->is_object() && found->contains("is_causal")) {
      return io::optional_bool(*found, "is_causal", file + ": " + key);
    }
  }
  return std::nullopt;
}

bool has_tokenizer(const std::string& directory) {
  constexpr size_t kThatSuffice = 6;
  return std::any_of(kTokenizerFiles.begin(), kTokenizerFiles.begin() + kThatSuffice,
                     [&](const char* name) { return is_file(path_in(directory, name)); });
}

std::string tokenizer_directory(const std::string& directory, const std::string& base) {
  return base.empty() || has_tokenizer(directory) ? directory : base;
}

ModelSpec read_model_spec(const std::string& given, const std::string& base) {
  ModelSpec spec;
  spec.directory = files_directory(given, base);
  spec.base = base.empty() ? given : base;
  const std::string& directory = spec.directory;
  const std::string config_file = path_in(spec.base, "config.json");
  const std::string modules_file = path_in(directory, "modules.json");
  spec.config = static_embedding_directory(directory) ? Json::object() : io::read_json_file(config_file);
  if (const auto causal = base.empty() ? std::nullopt : causal_of_adapter(given)) {
    spec.config["is_causal"] = *causal;
  }
  if (is_file(modules_file)) {
    const Json modules = read_modules(modules_file);
    for (const Json& entry : modules) {
      spec.modules.push_back(read_module(directory, entry, modules_file));
    }
  } else {
    spec.modules = {ModuleSpec{}, default_pooling(spec.config, config_file)};
  }
  const std::string sentence_file = path_in(directory, "sentence_bert_config.json");
  const bool has_transformer = !spec.modules.empty() && spec.modules[0].kind == ModuleKind::kTransformer;
  if (has_transformer && is_file(sentence_file)) {
    spec.max_seq_length = io::optional_int(io::read_json_file(sentence_file), "max_seq_length", sentence_file);
  }
  read_sentence_config(spec);
  for (const char* name : {"query", "document"}) {
    spec.prompts.try_emplace(name);  // every model of sentence-transformers has them
  }
  check_chain(spec);
  return spec;
}

ModelSpec with_overrides(ModelSpec spec, const ModelConfig& config, uint64_t seed) {
  if (config.causal) {
    set_causal(spec, *config.causal);
  }
  if (config.max_seq_length) {
    spec.max_seq_length = config.max_seq_length;
  }
  override_pooling(spec, config);
  if (config.dense) {
    ModuleSpec module;
    module.kind = ModuleKind::kDense;
    module.dense.in_features = spec.embedding_dim();
    module.dense.out_features = config.dense->out_features;
    module.dense.has_bias = config.dense->bias;
    module.dense.activation = config.dense->activation_function;
    module.dense.initial_seed = seed;
    const bool ends_normalized = spec.modules.back().kind == ModuleKind::kNormalize;
    spec.modules.insert(spec.modules.end() - (ends_normalized ? 1 : 0), module);
  }
  if (config.normalize) {
    remove_kind(spec.modules, ModuleKind::kNormalize);
    if (*config.normalize) {
      ModuleSpec module;
      module.kind = ModuleKind::kNormalize;
      spec.modules.push_back(module);
    }
  }
  for (size_t i = 1; i < spec.modules.size(); ++i) {
    const bool is_dense = spec.modules[i].kind == ModuleKind::kDense;
    if (spec.modules[i].path.empty()) {
      spec.modules[i].path = fmt::format("{}_{}", i, is_dense ? "Dense" : "Normalize");
    }
  }
  spec.dropout = config.dropout ? config.dropout : spec.dropout;
  for (const auto& [name, prompt] : config.prompts) {
    spec.prompts[name] = prompt;
  }
  if (spec.default_prompt_name && !spec.prompts.contains(*spec.default_prompt_name)) {
    throw UserError(fmt::format("{}: default_prompt_name '{}' is not one of its prompts",
                                path_in(spec.directory, "config_sentence_transformers.json"),
                                *spec.default_prompt_name));
  }
  spec.similarity = config.similarity_fn_name.value_or(spec.similarity);
  check_chain(spec);
  return spec;
}

}  // namespace stft::model
