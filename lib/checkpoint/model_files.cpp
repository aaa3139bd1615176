#include "checkpoint/model_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/error.h"
#include "checkpoint/manifest.h"
#include "checkpoint/model_writer.h"
#include "checkpoint/quantization_file.h"
#include "io/directory.h"
#include "io/file.h"
#include "io/json.h"
#include "peft/adapter_file.h"

namespace stft::checkpoint {
namespace {

constexpr const char* kCausalKey = "is_causal";
constexpr const char* kConfigFile = "config.json";
constexpr const char* kQuantizationKey = "quantization_config";

namespace fs = std::filesystem;
using io::Json;
using model::ModuleKind;
using model::PoolingMode;
using Ordered = nlohmann::ordered_json;

// Weights in this or another format: what was trained replaces them, so old copies must not travel along.
bool is_weight_file(const fs::path& path) {
  static const std::array<const char*, 10> kExtensions = {".safetensors", ".bin",       ".h5",   ".ot", ".msgpack",
                                                          ".onnx",        ".onnx_data", ".gguf", ".pt", ".ckpt"};
  const std::string name = path.filename().string();
  if (name.ends_with(".safetensors.index.json") || name.ends_with(".bin.index.json")) {
    return true;
  }
  for (const char* extension : kExtensions) {
    if (path.extension() == extension) {
      return true;
    }
  }
  return false;
}

// Also a run of our own, if one lies in the model's directory.
bool is_skipped_folder(const fs::path& path) {
  const std::string name = path.filename().string();
  return fs::exists(path / "recipe.resolved.yaml") || name == "onnx" || name == "openvino" || name == ".git" ||
         name == ".cache";
}

[[noreturn]] void throw_filesystem(const char* operation, const fs::path& path, const std::error_code& error) {
  throw SystemError(std::string(operation) + " '" + path.string() + "': " + error.message());
}

// What a checkpoint holds beside its model.
bool is_checkpoint_state(const std::string& top) {
  static const std::array<const char*, 6> kNames = {kManifestFile, kRunStateFile,       kTrainerStateFile,
                                                    kRecipeFile,   kShardedModelFolder, kOptimizerFolder};
  return std::find(kNames.begin(), kNames.end(), top) != kNames.end();
}

// A run inside the model's directory is not copied into its own export. The modules' own folders are written by the
// caller when they changed.
void copy_files(const fs::path& from, const fs::path& to, bool modules_changed, const std::set<std::string>& left_out) {
  std::error_code error;
  for (auto it = fs::recursive_directory_iterator(from, error); !error && it != fs::end(it); it.increment(error)) {
    const fs::path relative = it->path().lexically_relative(from);
    const std::string top = relative.begin()->string();
    const bool is_module_folder = top.size() > 2 && std::isdigit(static_cast<unsigned char>(top[0])) != 0 &&
                                  top.find('_') != std::string::npos && it->path() != from;
    if (it->is_directory()) {
      const bool is_kept_base = top == kBaseFolder && fs::exists(from / kManifestFile);
      if (is_skipped_folder(it->path()) || is_checkpoint_state(top) || is_kept_base ||
          io::lies_in(to.string(), it->path().string()) || (modules_changed && is_module_folder)) {
        it.disable_recursion_pending();
      } else {
        io::make_directories((to / relative).string());
      }
      continue;
    }
    if (!it->is_regular_file() || is_weight_file(it->path()) || is_checkpoint_state(relative.string()) ||
        left_out.contains(relative.string())) {
      continue;
    }
    fs::copy_file(it->path(), to / relative, fs::copy_options::overwrite_existing, error);
    if (error) {
      throw_filesystem("copying to", to / relative, error);
    }
  }
  if (error) {
    throw_filesystem("reading directory", from, error);
  }
}

void write_json(const fs::path& path, const Ordered& value) {
  io::write_file(path.string(), value.dump(2) + "\n");
}

const char* legacy_type(ModuleKind kind) {
  switch (kind) {
    case ModuleKind::kTransformer:
      return "sentence_transformers.models.Transformer";
    case ModuleKind::kStaticEmbedding:
      return "sentence_transformers.models.StaticEmbedding";
    case ModuleKind::kPooling:
      return "sentence_transformers.models.Pooling";
    case ModuleKind::kDense:
      return "sentence_transformers.models.Dense";
    case ModuleKind::kNormalize:
      return "sentence_transformers.models.Normalize";
  }
  throw_internal("known module", "");
}

Ordered pooling_config(const model::ModuleSpec& module) {
  const auto has = [&](PoolingMode mode) {
    return std::find(module.pooling.begin(), module.pooling.end(), mode) != module.pooling.end();
  };
  return {{"word_embedding_dimension", module.pooling_input_dim},
          {"pooling_mode_cls_token", has(PoolingMode::kCls)},
          {"pooling_mode_mean_tokens", has(PoolingMode::kMean)},
          {"pooling_mode_max_tokens", has(PoolingMode::kMax)},
          {"pooling_mode_mean_sqrt_len_tokens", has(PoolingMode::kMeanSqrtLenTokens)},
          {"pooling_mode_weightedmean_tokens", has(PoolingMode::kWeightedMean)},
          {"pooling_mode_lasttoken", has(PoolingMode::kLastToken)},
          {"include_prompt", module.include_prompt}};
}

// The boolean keys fix the order of several modes; an order that they cannot say needs the newer key.
bool legacy_keys_suffice(const std::vector<PoolingMode>& modes) {
  std::vector<PoolingMode> sorted = modes;
  std::sort(sorted.begin(), sorted.end(), [](PoolingMode a, PoolingMode b) {
    const auto place = [](PoolingMode mode) {
      return mode == PoolingMode::kMax ? 1 : mode == PoolingMode::kMean ? 2 : static_cast<int>(mode);
    };
    return place(a) < place(b);
  });
  return sorted == modes;
}

void write_module(const model::ModuleSpec& module, const fs::path& directory) {
  const fs::path folder = directory / module.path;
  io::make_directories(folder.string());
  if (module.kind == ModuleKind::kPooling) {
    Ordered config = pooling_config(module);
    if (!legacy_keys_suffice(module.pooling)) {
      config = {{"embedding_dimension", module.pooling_input_dim},
                {"pooling_mode", Ordered::array()},
                {"include_prompt", module.include_prompt}};
      for (const PoolingMode mode : module.pooling) {
        config["pooling_mode"].push_back(model::pooling_mode_name(mode));
      }
    }
    write_json(folder / "config.json", config);
  } else if (module.kind == ModuleKind::kDense) {
    Ordered config = {{"in_features", module.dense.in_features},
                      {"out_features", module.dense.out_features},
                      {"bias", module.dense.has_bias},
                      {"activation_function", model::dense_activation_class(module.dense.activation)}};
    if (module.dense.use_residual) {
      config["use_residual"] = true;  // older readers do not know the key
    }
    write_json(folder / "config.json", config);
  }
}

// A checkpoint's weights are not where a reader looks for the table's sizes.
void write_static_embedding(const model::ModelSpec& spec, const model::ModuleSpec& module, const fs::path& directory) {
  write_json(directory / module.path / model::kTableSizesFile,
             {{"num_embeddings", module.table.rows}, {"embedding_dim", module.table.width}});
  const fs::path tokenizer = fs::path(module.path) / "tokenizer.json";
  io::write_file((directory / tokenizer).string(), io::read_text_file((fs::path(spec.directory) / tokenizer).string()));
}

void write_modules(const model::ModelSpec& spec, const fs::path& directory) {
  Ordered list = Ordered::array();
  for (size_t i = 0; i < spec.modules.size(); ++i) {
    const model::ModuleSpec& module = spec.modules[i];
    list.push_back(
        {{"idx", i}, {"name", std::to_string(i)}, {"path", module.path}, {"type", legacy_type(module.kind)}});
    write_module(module, directory);
  }
  write_json(directory / "modules.json", list);
}

Ordered read_ordered(const fs::path& path) {
  if (!fs::exists(path)) {
    return Ordered::object();
  }
  io::read_json_file(path.string());  // refuses by name what cannot be parsed
  Ordered value = Ordered::parse(io::read_text_file(path.string()));
  if (!value.is_object()) {
    throw UserError("'" + path.string() + "' holds no object");
  }
  return value;
}

// Where an adapter's directory keeps what differs from the base's config.json; a whole model has it in its own.
void write_causal(const model::ModelSpec& spec, const Json& of_base, ModelForm form, const fs::path& directory) {
  const fs::path file = directory / "sentence_bert_config.json";
  const bool differs = spec.config.value(kCausalKey, Json()) != of_base.value(kCausalKey, Json());
  const bool is_kept = form == ModelForm::kAdapter && differs;
  const auto stored = model::causal_of_adapter(directory.string());
  if (spec.config.empty() || (!is_kept && !stored) || (form == ModelForm::kWhole && spec.base == spec.directory)) {
    return;
  }
  Ordered config = read_ordered(file);
  for (const char* key : {"config_kwargs", "config_args"}) {
    if (config.contains(key) && !config[key].is_object()) {
      config.erase(key);
    } else if (config.contains(key)) {
      config[key].erase(kCausalKey);
      if (config[key].empty()) {
        config.erase(key);
      }
    }
  }
  if (is_kept) {
    config[config.contains("config_kwargs") ? "config_kwargs" : "config_args"][kCausalKey] = spec.config.at(kCausalKey);
  }
  write_json(file, config);
}

void write_sentence_configs(const model::ModelSpec& spec, const model::ModelSpec& original, const fs::path& directory) {
  const fs::path sentence_file = directory / "sentence_bert_config.json";
  const bool has_transformer = spec.find(ModuleKind::kTransformer) != nullptr;
  if (has_transformer && (!fs::exists(sentence_file) || spec.max_seq_length != original.max_seq_length)) {
    Ordered config = read_ordered(sentence_file);
    config["max_seq_length"] = spec.max_seq_length ? Ordered(*spec.max_seq_length) : Ordered(nullptr);
    if (!config.contains("do_lower_case")) {
      config["do_lower_case"] = false;
    }
    write_json(sentence_file, config);
  }
  const fs::path config_file = directory / "config_sentence_transformers.json";
  if (!fs::exists(config_file) || spec.prompts != original.prompts || spec.similarity != original.similarity) {
    Ordered config = read_ordered(config_file);
    config["prompts"] = spec.prompts;
    config["default_prompt_name"] = spec.default_prompt_name ? Ordered(*spec.default_prompt_name) : Ordered(nullptr);
    config["similarity_fn_name"] = model::similarity_name(spec.similarity);
    write_json(config_file, config);
  }
}

// The copied config.json with what differs from the `original`; the keys keep their order.
void write_changed_config(const model::ModelSpec& spec, const Json& original, const fs::path& directory) {
  const fs::path file = directory / "config.json";
  const Json wanted = model::config_for_export(spec.config, file.string());
  if (wanted == original) {
    return;
  }
  Ordered config = read_ordered(file);
  for (const auto& [key, value] : wanted.items()) {
    if (!original.contains(key) || original.at(key) != value) {
      config[key] = value;
    }
  }
  for (const auto& entry : original.items()) {
    if (!wanted.contains(entry.key())) {
      config.erase(entry.key());
    }
  }
  write_json(file, config);
}

// Weights are written as what they stand for.
void drop_quantization(const fs::path& directory) {
  Ordered config = read_ordered(directory / kConfigFile);
  if (config.contains(kQuantizationKey)) {
    config.erase(kQuantizationKey);
    write_json(directory / kConfigFile, config);
  }
}

}  // namespace

void write_model_files(const model::ModelSpec& spec, const std::string& directory, ModelForm form) {
  const model::ModelSpec original =
      model::read_model_spec(spec.directory, spec.base == spec.directory ? "" : spec.base);
  const fs::path to(directory);
  const bool is_whole = form == ModelForm::kWhole;
  const bool modules_changed =
      spec.modules != original.modules || !fs::exists(fs::path(spec.directory) / "modules.json");
  // What is said of a quantized base is said of one adapter, never of a model that was made from it.
  copy_files(spec.directory, to, modules_changed,
             {is_whole ? peft::kAdapterConfigFile : kConfigFile, kQuantizationFile});
  const fs::path base_config = fs::path(spec.base) / kConfigFile;
  const bool has_config = fs::exists(base_config);  // a StaticEmbedding has none
  if (is_whole && spec.base != spec.directory && has_config) {
    io::write_file((to / kConfigFile).string(), io::read_text_file(base_config.string()));
  }
  if (modules_changed) {
    write_modules(spec, to);
  }
  for (const model::ModuleSpec& module : spec.modules) {
    io::make_directories((to / module.path).string());  // 2_Normalize often has no folder on disk
    if (module.kind == ModuleKind::kStaticEmbedding) {
      write_static_embedding(spec, module, to);
    }
  }
  write_sentence_configs(spec, original, to);
  const Json of_base = has_config ? io::read_json_file(base_config.string()) : original.config;
  write_causal(spec, of_base, form, to);
  if (is_whole) {
    write_changed_config(spec, of_base, to);
  }
  if (is_whole) {
    drop_quantization(to);
  }
}

void write_base_config(const model::ModelSpec& spec, const std::string& directory) {
  const fs::path to(directory);
  io::make_directories(directory);
  const fs::path config = fs::path(spec.base) / kConfigFile;
  if (fs::exists(config)) {  // a StaticEmbedding has none
    io::write_file((to / kConfigFile).string(), io::read_text_file(config.string()));
    drop_quantization(to);
  }
}

void replace_tokenizer(const std::string& from, const std::string& to) {
  if (!model::has_tokenizer(from)) {
    return;
  }
  for (const char* name : model::kTokenizerFiles) {
    const fs::path source = fs::path(from) / name, target = fs::path(to) / name;
    std::error_code error;
    fs::remove(target, error);
    if (fs::exists(source)) {
      io::write_file(target.string(), io::read_text_file(source.string()));
    }
  }
}

void copy_adapter_files(const std::string& from, const std::string& to) {
  copy_files(from, to, false, {kConfigFile});
}

void set_config_dtype(const std::string& directory, const std::string& dtype) {
  const std::string path = (fs::path(directory) / "config.json").string();
  if (!fs::exists(path)) {
    return;  // beside a StaticEmbedding
  }
  const std::string text = io::read_text_file(path);
  if (config_dtype(text, path) != dtype) {
    io::write_file(path, with_config_dtype(text, dtype, path));
  }
}

}  // namespace stft::checkpoint
