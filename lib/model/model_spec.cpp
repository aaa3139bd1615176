#include "model/model_spec.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "model/encoder.h"

namespace stft::model {
namespace {

namespace fs = std::filesystem;
using io::Json;

struct PoolingName {
  PoolingMode mode;
  const char* name;        // sentence-transformers 5.4 and later
  const char* legacy_key;  // boolean key before; their order fixes the order of concatenation
};

constexpr std::array<PoolingName, 6> kPoolingNames = {{
    {PoolingMode::kCls, "cls", "pooling_mode_cls_token"},
    {PoolingMode::kMax, "max", "pooling_mode_max_tokens"},
    {PoolingMode::kMean, "mean", "pooling_mode_mean_tokens"},
    {PoolingMode::kMeanSqrtLenTokens, "mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"},
    {PoolingMode::kWeightedMean, "weightedmean", "pooling_mode_weightedmean_tokens"},
    {PoolingMode::kLastToken, "lasttoken", "pooling_mode_lasttoken"},
}};

constexpr std::array<std::pair<Similarity, const char*>, 4> kSimilarityNames = {{
    {Similarity::kCosine, "cosine"},
    {Similarity::kDot, "dot"},
    {Similarity::kEuclidean, "euclidean"},
    {Similarity::kManhattan, "manhattan"},
}};

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::string join(const std::string& directory, const std::string& name) {
  return name.empty() ? directory : (fs::path(directory) / name).string();
}

PoolingMode pooling_from_name(const std::string& name, const std::string& origin) {
  for (const auto& entry : kPoolingNames) {
    if (name == entry.name) {
      return entry.mode;
    }
  }
  throw UserError(fmt::format("{}: unknown pooling_mode \"{}\"", origin, name));
}

std::vector<PoolingMode> read_pooling_modes(const Json& config, const std::string& origin) {
  std::vector<PoolingMode> modes;
  if (config.contains("pooling_mode")) {
    const Json& value = config.at("pooling_mode");
    if (value.is_string()) {
      return {pooling_from_name(value.get<std::string>(), origin)};
    }
    if (!value.is_array() || value.empty()) {
      throw UserError(origin + ": pooling_mode: expected a name or a list of names");
    }
    for (const Json& name : value) {
      modes.push_back(pooling_from_name(name.is_string() ? name.get<std::string>() : name.dump(), origin));
    }
    return modes;
  }
  for (const auto& entry : kPoolingNames) {
    if (io::optional_bool(config, entry.legacy_key, origin).value_or(false)) {
      modes.push_back(entry.mode);
    }
  }
  if (modes.empty()) {
    modes.push_back(PoolingMode::kMean);
  }
  return modes;
}

Similarity similarity_from_name(const std::string& name, const std::string& origin) {
  for (const auto& [similarity, known] : kSimilarityNames) {
    if (name == known) {
      return similarity;
    }
  }
  throw UserError(fmt::format("{}: unknown similarity_fn_name \"{}\"", origin, name));
}

ModuleSpec read_pooling(const std::string& directory, const std::string& path) {
  ModuleSpec module;
  module.kind = ModuleKind::kPooling;
  module.path = path;
  const std::string file = join(directory, path + "/config.json");
  const Json config = io::read_json_file(file);
  module.pooling = read_pooling_modes(config, file);
  const auto dim = io::optional_int(config, "embedding_dimension", file);
  module.pooling_input_dim = dim ? *dim : io::get_int(config, "word_embedding_dimension", file);
  module.include_prompt = io::optional_bool(config, "include_prompt", file).value_or(true);
  return module;
}

DenseActivation read_activation(const std::string& name, const std::string& origin) {
  if (name == "torch.nn.modules.activation.Tanh") {
    return DenseActivation::kTanh;
  }
  if (name == "torch.nn.modules.linear.Identity") {
    return DenseActivation::kIdentity;
  }
  throw UserError(
      fmt::format("{}: activation_function '{}' is not available yet (Tanh and Identity are)", origin, name));
}

ModuleSpec read_dense(const std::string& directory, const std::string& path) {
  ModuleSpec module;
  module.kind = ModuleKind::kDense;
  module.path = path;
  const std::string file = join(directory, path + "/config.json");
  const Json config = io::read_json_file(file);
  module.dense.in_features = io::get_int(config, "in_features", file);
  module.dense.out_features = io::get_int(config, "out_features", file);
  if (module.dense.in_features <= 0 || module.dense.out_features <= 0) {
    throw UserError(file + ": in_features and out_features must be positive");
  }
  module.dense.has_bias = io::optional_bool(config, "bias", file).value_or(true);
  module.dense.activation = read_activation(
      io::optional_string(config, "activation_function", file).value_or("torch.nn.modules.activation.Tanh"), file);
  if (io::optional_bool(config, "use_residual", file).value_or(false)) {
    throw UserError(file + ": use_residual true is not available yet");
  }
  return module;
}

ModuleSpec read_module(const std::string& directory, const Json& entry, const std::string& origin) {
  const std::string type = io::get_string(entry, "type", origin);
  const std::string path = io::optional_string(entry, "path", origin).value_or("");
  if (fs::path(path).is_absolute() || path.find("..") != std::string::npos) {
    throw UserError(fmt::format("{}: module path \"{}\" leaves the model directory", origin, path));
  }
  const std::string name = type.substr(type.find_last_of('.') + 1);
  ModuleSpec module;
  if (!type.starts_with("sentence_transformers.")) {
    throw UserError(fmt::format("{}: module type \"{}\" is not one of sentence-transformers'", origin, type));
  }
  if (name == "Transformer") {
    if (!path.empty()) {
      throw UserError(fmt::format("{}: a Transformer in the sub-directory \"{}\" is not available yet", origin, path));
    }
    return module;
  }
  if (name == "Pooling") {
    return read_pooling(directory, path);
  }
  if (name == "Dense") {
    return read_dense(directory, path);
  }
  if (name == "Normalize") {
    module.kind = ModuleKind::kNormalize;
    module.path = path;
    return module;
  }
  throw UserError(fmt::format("{}: module '{}' is not available yet", origin, name));
}

void read_sentence_config(ModelSpec& spec) {
  const std::string file = join(spec.directory, "config_sentence_transformers.json");
  if (!exists(file)) {
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

// Every Dense takes what the modules before it give, and one pooling comes before anything that works on vectors.
void check_chain(const ModelSpec& spec) {
  const std::string origin = join(spec.directory, "modules.json");
  if (spec.modules.size() < 2 || spec.modules[0].kind != ModuleKind::kTransformer ||
      spec.modules[1].kind != ModuleKind::kPooling) {
    throw UserError(origin + ": expected a Transformer, then a Pooling, then Dense or Normalize modules");
  }
  const std::string config_file = join(spec.directory, "config.json");
  const int64_t hidden = configured_hidden_size(spec.config, config_file);
  if (spec.modules[1].pooling_input_dim != hidden) {
    throw UserError(fmt::format("{}: pooling expects vectors of {}, but config.json's hidden_size is {}",
                                join(spec.directory, spec.modules[1].path + "/config.json"),
                                spec.modules[1].pooling_input_dim, hidden));
  }
  int64_t dim = hidden * static_cast<int64_t>(spec.modules[1].pooling.size());
  for (size_t i = 2; i < spec.modules.size(); ++i) {
    const ModuleSpec& module = spec.modules[i];
    if (module.kind == ModuleKind::kTransformer || module.kind == ModuleKind::kPooling) {
      throw UserError(origin + ": a second Transformer or Pooling is not available yet");
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
  if (io::optional_bool(spec.config, "use_bidirectional_attention", join(spec.directory, "config.json"))
          .value_or(false)) {
    if (is_causal) {
      throw UserError("model.causal: true: the model is bidirectional (use_bidirectional_attention)");
    }
    return;
  }
  spec.config["is_causal"] = is_causal;
  if (!exists(join(spec.directory, "modules.json"))) {
    spec.modules[1] = default_pooling(spec.config, join(spec.directory, "config.json"));
  }
}

void remove_kind(std::vector<ModuleSpec>& modules, ModuleKind kind) {
  std::erase_if(modules, [&](const ModuleSpec& module) { return module.kind == kind; });
}

}  // namespace

std::string pooling_mode_name(PoolingMode mode) {
  for (const auto& entry : kPoolingNames) {
    if (entry.mode == mode) {
      return entry.name;
    }
  }
  throw_internal("known pooling mode", "");
}

std::string similarity_name(Similarity similarity) {
  for (const auto& [known, name] : kSimilarityNames) {
    if (known == similarity) {
      return name;
    }
  }
  throw_internal("known similarity", "");
}

int64_t ModelSpec::embedding_dim() const {
  int64_t dim = 0;
  for (const ModuleSpec& module : modules) {
    if (module.kind == ModuleKind::kPooling) {
      dim = module.pooling_input_dim * static_cast<int64_t>(module.pooling.size());
    } else if (module.kind == ModuleKind::kDense) {
      dim = module.dense.out_features;
    }
  }
  return dim;
}

const ModuleSpec* ModelSpec::find(ModuleKind kind) const {
  for (const ModuleSpec& module : modules) {
    if (module.kind == kind) {
      return &module;
    }
  }
  return nullptr;
}

std::string files_directory(const std::string& directory, const std::string& base) {
  return base.empty() || exists(join(directory, "modules.json")) ? directory : base;
}

ModelSpec read_model_spec(const std::string& given, const std::string& base) {
  ModelSpec spec;
  spec.directory = files_directory(given, base);
  spec.base = base.empty() ? given : base;
  const std::string& directory = spec.directory;
  const std::string config_file = join(spec.base, "config.json");
  spec.config = io::read_json_file(config_file);
  const std::string modules_file = join(directory, "modules.json");
  if (exists(modules_file)) {
    const Json modules = io::read_json_file(modules_file);
    if (!modules.is_array()) {
      throw UserError(modules_file + ": expected a list of modules");
    }
    for (const Json& entry : modules) {
      spec.modules.push_back(read_module(directory, entry, modules_file));
    }
  } else {
    spec.modules = {ModuleSpec{}, default_pooling(spec.config, config_file)};
  }
  const std::string sentence_file = join(directory, "sentence_bert_config.json");
  if (exists(sentence_file)) {
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
  if (!config.pooling.empty()) {
    spec.modules[1].pooling = config.pooling;
  }
  spec.modules[1].include_prompt = config.include_prompt.value_or(spec.modules[1].include_prompt);
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
  for (size_t i = 2; i < spec.modules.size(); ++i) {
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
                                join(spec.directory, "config_sentence_transformers.json"), *spec.default_prompt_name));
  }
  spec.similarity = config.similarity_fn_name.value_or(spec.similarity);
  check_chain(spec);
  return spec;
}

}  // namespace stft::model
