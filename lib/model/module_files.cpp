#include "model/module_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "io/safetensors.h"

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

constexpr std::array<std::pair<DenseActivation, const char*>, 6> kActivationClasses = {{
    {DenseActivation::kTanh, "torch.nn.modules.activation.Tanh"},
    {DenseActivation::kIdentity, "torch.nn.modules.linear.Identity"},
    {DenseActivation::kGelu, "torch.nn.modules.activation.GELU"},
    {DenseActivation::kRelu, "torch.nn.modules.activation.ReLU"},
    {DenseActivation::kSilu, "torch.nn.modules.activation.SiLU"},
    {DenseActivation::kSigmoid, "torch.nn.modules.activation.Sigmoid"},
}};

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

ModuleSpec read_pooling(const std::string& directory, const std::string& path) {
  ModuleSpec module;
  module.kind = ModuleKind::kPooling;
  module.path = path;
  const std::string file = path_in(directory, path + "/config.json");
  const Json config = io::read_json_file(file);
  module.pooling = read_pooling_modes(config, file);
  const auto dim = io::optional_int(config, "embedding_dimension", file);
  module.pooling_input_dim = dim ? *dim : io::get_int(config, "word_embedding_dimension", file);
  module.include_prompt = io::optional_bool(config, "include_prompt", file).value_or(true);
  return module;
}

DenseActivation read_activation(const std::string& name, const std::string& origin) {
  std::string available;
  for (const auto& [activation, known] : kActivationClasses) {
    if (name == known) {
      return activation;
    }
    available += (available.empty() ? "" : ", ") + std::string(known);
  }
  throw UserError(
      fmt::format("{}: activation_function '{}' is not available yet (available: {})", origin, name, available));
}

ModuleSpec read_dense(const std::string& directory, const std::string& path) {
  ModuleSpec module;
  module.kind = ModuleKind::kDense;
  module.path = path;
  const std::string file = path_in(directory, path + "/config.json");
  const Json config = io::read_json_file(file);
  module.dense.in_features = io::get_int(config, "in_features", file);
  module.dense.out_features = io::get_int(config, "out_features", file);
  if (module.dense.in_features <= 0 || module.dense.out_features <= 0) {
    throw UserError(file + ": in_features and out_features must be positive");
  }
  module.dense.has_bias = io::optional_bool(config, "bias", file).value_or(true);
  module.dense.activation = read_activation(
      io::optional_string(config, "activation_function", file).value_or("torch.nn.modules.activation.Tanh"), file);
  module.dense.use_residual = io::optional_bool(config, "use_residual", file).value_or(false);
  return module;
}

StaticEmbeddingSpec table_in(const std::string& file) {
  const auto weights = io::SafetensorsFile::open(file);
  for (const char* folded : {"mapping", "weights"}) {
    if (weights.find(folded) != nullptr) {
      throw UserError(
          fmt::format("{}: '{}' of a vocabulary-quantized model2vec model is not available yet", file, folded));
    }
  }
  const io::TensorInfo* table = weights.find("embedding.weight");
  table = table != nullptr ? table : weights.find("embeddings");
  if (table == nullptr || table->shape.size() != 2) {
    throw UserError(file + ": has no table 'embedding.weight' or 'embeddings' of two dimensions");
  }
  return {table->shape[0], table->shape[1]};
}

// The sizes of the table stand in the header of its file or, in a SHARDED checkpoint, in a file of ours.
ModuleSpec read_static_embedding(const std::string& directory, const std::string& path) {
  const std::string folder = path_in(directory, path);
  const std::string weights_file = path_in(folder, "model.safetensors");
  const std::string sizes_file = path_in(folder, kTableSizesFile);
  ModuleSpec module;
  module.kind = ModuleKind::kStaticEmbedding;
  module.path = path;
  if (is_file(weights_file) || !is_file(sizes_file)) {
    module.table = table_in(weights_file);
  } else {
    const Json sizes = io::read_json_file(sizes_file);
    module.table = {io::get_int(sizes, "num_embeddings", sizes_file), io::get_int(sizes, "embedding_dim", sizes_file)};
  }
  if (module.table.rows <= 0 || module.table.width <= 0) {
    throw UserError(fmt::format("{}: a table of {} x {}", folder, module.table.rows, module.table.width));
  }
  return module;
}

}  // namespace

bool is_file(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::string path_in(const std::string& directory, const std::string& name) {
  return name.empty() ? directory : (fs::path(directory) / name).string();
}

std::string pooling_mode_name(PoolingMode mode) {
  for (const auto& entry : kPoolingNames) {
    if (entry.mode == mode) {
      return entry.name;
    }
  }
  throw_internal("known pooling mode", "");
}

std::string dense_activation_class(DenseActivation activation) {
  for (const auto& [known, name] : kActivationClasses) {
    if (known == activation) {
      return name;
    }
  }
  throw_internal("known activation", "");
}

Json read_modules(const std::string& file) {
  Json modules = io::read_json_file(file);
  if (!modules.is_array()) {
    throw UserError(file + ": expected a list of modules");
  }
  return modules;
}

std::string module_path(const Json& entry, const std::string& origin) {
  const std::string path = io::optional_string(entry, "path", origin).value_or("");
  const fs::path parts(path);
  if (parts.is_absolute() || std::find(parts.begin(), parts.end(), "..") != parts.end()) {
    throw UserError(fmt::format("{}: module path \"{}\" leaves the model directory", origin, path));
  }
  return path == "." ? "" : path;
}

ModuleSpec read_module(const std::string& directory, const Json& entry, const std::string& origin) {
  const std::string type = io::get_string(entry, "type", origin);
  const std::string path = module_path(entry, origin);
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
  if (name == "StaticEmbedding") {
    return read_static_embedding(directory, path);
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

}  // namespace stft::model
