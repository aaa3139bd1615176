#include "peft/adapter_file.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "io/json.h"

namespace stft::peft {
namespace {

namespace fs = std::filesystem;
using io::Json;

[[noreturn]] void refuse(const std::string& path, const std::string& key, const std::string& what) {
  throw UserError(fmt::format("{}: {}: {}", path, key, what));
}

bool is_off(const Json& value) {
  return value.is_null() || value == Json(false) || (value.is_object() && value.empty()) ||
         (value.is_array() && value.empty());
}

// Features that change what the tensors mean; off by default. corda_config and eva_config only matter while an adapter
// is made.
void refuse_features(const Json& json, const std::string& path) {
  for (const char* key : {"alora_invocation_tokens", "arrow_config", "fan_in_fan_out", "kasa_config",
                          "layer_replication", "megatron_config", "monteclora_config", "target_parameters",
                          "trainable_token_indices", "use_bdlora", "use_qalora", "velora_config"}) {
    const auto found = json.find(key);
    if (found != json.end() && !is_off(*found)) {
      refuse(path, key, "this feature of PEFT is not available");
    }
  }
}

// An initialisation that takes something out of the base's weights (PiSSA, OLoRA, CorDA, LoftQ, ...) is done again by
// PEFT when it loads the adapter, whose tensors belong to that other base.
LoraInit read_init(const Json& json, const std::string& path) {
  const auto found = json.find("init_lora_weights");
  if (found == json.end() || found->is_null() || found->is_boolean()) {
    return LoraInit::kTrue;
  }
  if (*found == "gaussian") {
    return LoraInit::kGaussian;
  }
  if (*found != "eva" && *found != "orthogonal") {
    refuse(path, "init_lora_weights",
           found->dump() +
               " changes the base's weights and is not available; PEFT can save such an adapter converted "
               "(path_initial_model_for_weight_conversion)");
  }
  return LoraInit::kTrue;
}

double number(const Json& json, const char* key, double or_else, const std::string& path) {
  const double value = io::optional_double(json, key, path).value_or(or_else);
  if (!std::isfinite(value)) {
    refuse(path, key, "expected a finite number");
  }
  return value;
}

int64_t positive(const Json& value, const std::string& key, const std::string& path) {
  if (!value.is_number_integer() || value.get<int64_t>() < 1) {
    refuse(path, key, "expected an integer above 0, found " + value.dump());
  }
  return value.get<int64_t>();
}

std::vector<std::string> texts(const Json& json, const char* key, const std::string& path) {
  std::vector<std::string> result;
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) {
    return result;
  }
  if (found->is_string()) {
    return {found->get<std::string>()};
  }
  if (!found->is_array()) {
    refuse(path, key, "expected a list of names or one text, found " + io::json_type_name(*found));
  }
  for (const Json& entry : *found) {
    if (!entry.is_string()) {
      refuse(path, key, "expected names, found " + io::json_type_name(entry));
    }
    result.push_back(entry.get<std::string>());
  }
  return result;
}

bool is_list(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_array();
}

AdapterConfig read_patterns(const Json& json, AdapterConfig config, const std::string& path) {
  for (const char* key : {"rank_pattern", "alpha_pattern"}) {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null()) {
      continue;
    }
    if (!found->is_object()) {
      refuse(path, key, "expected an object, found " + io::json_type_name(*found));
    }
    for (const auto& [name, value] : found->items()) {
      if (key == std::string("rank_pattern")) {
        config.rank_pattern[name] = positive(value, std::string(key) + "." + name, path);
      } else {
        config.alpha_pattern[name] = io::get_double(*found, name, path);
      }
    }
  }
  return config;
}

LoraBias read_bias(const Json& json, const std::string& path) {
  const std::string bias = io::optional_string(json, "bias", path).value_or("none");
  if (bias == "none") {
    return LoraBias::kNone;
  }
  if (bias == "all") {
    return LoraBias::kAll;
  }
  if (bias == "lora_only") {
    return LoraBias::kLoraOnly;
  }
  refuse(path, "bias", "expected none, all or lora_only, found '" + bias + "'");
}

Json whole(double value) {
  return value == std::floor(value) && std::fabs(value) < 1e15 ? Json(static_cast<int64_t>(value)) : Json(value);
}

const char* bias_name(LoraBias bias) {
  switch (bias) {
    case LoraBias::kNone:
      return "none";
    case LoraBias::kAll:
      return "all";
    case LoraBias::kLoraOnly:
      return "lora_only";
  }
  throw_internal("known bias", "");
}

// What PEFT writes for a plain LoRA.
Json plain_config() {
  Json json = {{"alpha_pattern", Json::object()},
               {"ensure_weight_tying", false},
               {"fan_in_fan_out", false},
               {"inference_mode", true},
               {"loftq_config", Json::object()},
               {"megatron_core", "megatron.core"},
               {"peft_type", "LORA"},
               {"peft_version", "0.21.2"},
               {"qalora_group_size", 16},
               {"rank_pattern", Json::object()},
               {"task_type", "FEATURE_EXTRACTION"},
               {"use_qalora", false}};
  for (const char* key :
       {"alora_invocation_tokens", "arrow_config", "auto_mapping", "corda_config", "eva_config", "exclude_modules",
        "kasa_config", "layer_replication", "layers_pattern", "layers_to_transform", "lora_ga_config",
        "megatron_config", "modules_to_save", "monteclora_config", "revision", "target_parameters",
        "trainable_token_indices", "use_bdlora", "velora_config"}) {
    json[key] = nullptr;
  }
  return json;
}

}  // namespace

AdapterFileConfig read_adapter_config(const std::string& directory) {
  AdapterFileConfig result;
  result.path = (fs::path(directory) / kAdapterConfigFile).string();
  const std::string& path = result.path;
  const Json json = io::read_json_file(path);
  const std::string type = io::get_string(json, "peft_type", path);
  if (type != "LORA") {
    refuse(path, "peft_type", "expected LORA, found '" + type + "'; other adapters are not available");
  }
  refuse_features(json, path);
  result.base_model = io::optional_string(json, "base_model_name_or_path", path).value_or("");
  result.revision = io::optional_string(json, "revision", path);
  AdapterConfig& config = result.config;
  if (const auto r = json.find("r"); r != json.end() && !r->is_null()) {
    config.r = positive(*r, "r", path);
  }
  config.lora_alpha = number(json, "lora_alpha", config.lora_alpha, path);
  config.lora_dropout = number(json, "lora_dropout", config.lora_dropout, path);
  if (config.lora_dropout < 0 || config.lora_dropout >= 1) {
    refuse(path, "lora_dropout", fmt::format("expected 0 to below 1, found {}", config.lora_dropout));
  }
  config.target_modules = texts(json, "target_modules", path);
  config.target_modules_is_list = is_list(json, "target_modules");
  config.exclude_modules = texts(json, "exclude_modules", path);
  config.exclude_modules_is_list = is_list(json, "exclude_modules") || config.exclude_modules.empty();
  config.modules_to_save = texts(json, "modules_to_save", path);
  config = read_patterns(json, std::move(config), path);
  config.use_rslora = io::optional_bool(json, "use_rslora", path).value_or(false);
  config.use_dora = io::optional_bool(json, "use_dora", path).value_or(false);
  config.lora_bias = io::optional_bool(json, "lora_bias", path).value_or(false);
  config.bias = read_bias(json, path);
  config.init_lora_weights = read_init(json, path);
  check_patterns(config, [&](const std::string& key) { return path + ": " + key; });
  return result;
}

std::string adapter_config_text(const Adapter& adapter) {
  const AdapterConfig& config = adapter.config;
  Json json = plain_config();
  json["base_model_name_or_path"] = adapter.base_model;
  json["bias"] = bias_name(config.bias);
  json["init_lora_weights"] = config.init_lora_weights == LoraInit::kGaussian ? Json("gaussian") : Json(true);
  json["lora_alpha"] = whole(config.lora_alpha);
  json["lora_bias"] = config.lora_bias;
  json["lora_dropout"] = config.lora_dropout;
  json["r"] = config.r;
  json["use_dora"] = config.use_dora;
  json["use_rslora"] = config.use_rslora;
  if (adapter.revision) {
    json["revision"] = *adapter.revision;
  }
  if (!config.modules_to_save.empty()) {
    json["modules_to_save"] = config.modules_to_save;
  }
  for (const auto& [key, r] : config.rank_pattern) {
    json["rank_pattern"][key] = r;
  }
  for (const auto& [key, alpha] : config.alpha_pattern) {
    json["alpha_pattern"][key] = whole(alpha);
  }
  json["target_modules"] = Json::array();
  for (const Target& module : adapter.modules) {
    json["target_modules"].push_back(module.name);
  }
  return json.dump(2, ' ', true) + "\n";
}

}  // namespace stft::peft
