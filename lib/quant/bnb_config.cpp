#include "quant/bnb_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <span>

#include "base/error.h"

namespace stft::quant {

namespace {

template <class T>
struct Choice {
  const char* name;
  T value;
};

constexpr std::array<Choice<QuantType>, 2> kTypes = {{{"nf4", QuantType::kNf4}, {"fp4", QuantType::kFp4}}};
constexpr std::array<Choice<WeightDtype>, 3> kComputeDtypes = {
    {{"float32", WeightDtype::kFp32}, {"bfloat16", WeightDtype::kBf16}, {"float16", WeightDtype::kFp16}}};
constexpr std::array<Choice<io::Dtype>, 7> kStorages = {{{"uint8", io::Dtype::kU8},
                                                         {"int8", io::Dtype::kI8},
                                                         {"float16", io::Dtype::kF16},
                                                         {"bfloat16", io::Dtype::kBF16},
                                                         {"float32", io::Dtype::kF32},
                                                         {"float64", io::Dtype::kF64},
                                                         {"int32", io::Dtype::kI32}}};

template <class T, std::size_t N>
T read_choice(const io::Json& block, const char* key, const std::array<Choice<T>, N>& choices, T missing,
              const std::string& origin) {
  const auto text = io::optional_string(block, key, origin);
  if (!text) {
    return missing;
  }
  std::vector<std::string> names;
  for (const Choice<T>& choice : choices) {
    if (*text == choice.name || *text == std::string("torch.") + choice.name) {
      return choice.value;
    }
    names.emplace_back(choice.name);
  }
  throw UserError(fmt::format("{}: {} is '{}'; allowed are {}", origin, key, *text, fmt::join(names, ", ")));
}

template <class T, std::size_t N>
const char* name_of(const std::array<Choice<T>, N>& choices, T value) {
  for (const Choice<T>& choice : choices) {
    if (choice.value == value) {
      return choice.name;
    }
  }
  throw_internal("a known value", "quantization_config has no name for it");
}

std::optional<std::vector<std::string>> read_skip_modules(const io::Json& block, const std::string& origin) {
  const auto found = block.find("llm_int8_skip_modules");
  if (found == block.end() || found->is_null()) {
    return std::nullopt;
  }
  std::vector<std::string> names;
  for (const io::Json& name : found->is_array() ? *found : io::Json::array({*found})) {
    if (!name.is_string()) {
      throw UserError(
          fmt::format("{}: llm_int8_skip_modules holds {}, expected names", origin, io::json_type_name(name)));
    }
    names.push_back(name.get<std::string>());
  }
  return names;
}

}  // namespace

std::optional<StoredQuantization> read_quantization_config(const io::Json& config, const std::string& origin) {
  const auto found = config.find("quantization_config");
  if (found == config.end() || found->is_null()) {
    return std::nullopt;
  }
  const io::Json& block = *found;
  const std::string where = origin + ": quantization_config";
  const std::string method = io::optional_string(block, "quant_method", where).value_or("bitsandbytes");
  if (method != "bitsandbytes") {
    throw UserError(fmt::format("{}: quant_method is '{}'; allowed is bitsandbytes", where, method));
  }
  const auto flag = [&](const char* key) {
    return io::optional_bool(block, key, where)
        .value_or(io::optional_bool(block, std::string("_") + key, where).value_or(false));
  };
  if (flag("load_in_8bit")) {
    throw UserError(fmt::format("{}: load_in_8bit is true; allowed are weights of 4 bits", where));
  }
  if (!flag("load_in_4bit")) {
    throw UserError(fmt::format("{}: load_in_4bit is not true; allowed are weights of 4 bits", where));
  }
  StoredQuantization read;
  read.quant_type = read_choice(block, "bnb_4bit_quant_type", kTypes, read.quant_type, where);
  read.double_quant = io::optional_bool(block, "bnb_4bit_use_double_quant", where).value_or(false);
  read.compute_dtype = read_choice(block, "bnb_4bit_compute_dtype", kComputeDtypes, read.compute_dtype, where);
  read.storage = read_choice(block, "bnb_4bit_quant_storage", kStorages, read.storage, where);
  read.skip_modules = read_skip_modules(block, where);
  return read;
}

io::Json quantization_config_json(const StoredQuantization& quantization) {
  io::Json skipped = nullptr;
  if (quantization.skip_modules) {
    skipped = *quantization.skip_modules;
  }
  return {{"_load_in_4bit", true},
          {"_load_in_8bit", false},
          {"bnb_4bit_compute_dtype", name_of(kComputeDtypes, quantization.compute_dtype)},
          {"bnb_4bit_quant_storage", name_of(kStorages, quantization.storage)},
          {"bnb_4bit_quant_type", name_of(kTypes, quantization.quant_type)},
          {"bnb_4bit_use_double_quant", quantization.double_quant},
          {"llm_int8_enable_fp32_cpu_offload", false},
          {"llm_int8_has_fp16_weight", false},
          {"llm_int8_skip_modules", skipped},
          {"llm_int8_threshold", 6.0},
          {"load_in_4bit", true},
          {"load_in_8bit", false},
          {"quant_method", "bitsandbytes"}};
}

}  // namespace stft::quant
