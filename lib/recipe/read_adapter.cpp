// The blocks `adapter:`, `quantization:` and `sharding:`.
#include <utility>

#include "recipe/scalars.h"
#include "recipe/sections.h"

namespace stft::recipe {

namespace {

// true | gaussian | pissa: a boolean or a word, as in PEFT.
peft::LoraInit read_lora_init(Reader& reader) {
  const YamlNode* node = reader.child("init_lora_weights");
  const bool is_true =
      node != nullptr && node->kind == YamlKind::kScalar && (node->text == "True" || node->text == "TRUE");
  return is_true ? peft::LoraInit::kTrue
                 : reader.choice("init_lora_weights", kLoraInits).value_or(peft::LoraInit::kTrue);
}

peft::AdapterConfig read_targets(Reader& reader, peft::AdapterConfig adapter) {
  const YamlNode* node = reader.child("target_modules");
  adapter.target_modules_is_list = node != nullptr && node->kind == YamlKind::kList;
  adapter.target_modules = reader.texts("target_modules").value_or(adapter.target_modules);
  const YamlNode* excluded = reader.child("exclude_modules");
  adapter.exclude_modules_is_list = excluded == nullptr || excluded->kind != YamlKind::kScalar;
  adapter.exclude_modules = reader.texts("exclude_modules").value_or(adapter.exclude_modules);
  adapter.modules_to_save = reader.texts("modules_to_save").value_or(adapter.modules_to_save);
  adapter.rank_pattern = reader.integer_map("rank_pattern", kCount).value_or(adapter.rank_pattern);
  for (const auto& [pattern, alpha] :
       reader.number_map("alpha_pattern", kFinite).value_or(std::vector<std::pair<std::string, double>>())) {
    adapter.alpha_pattern.emplace(pattern, alpha);
  }
  adapter.layers_to_transform = reader.integers("layers_to_transform", {0});
  return adapter;
}

// null | true | false | an integer.
shard::ShardConfig read_reshard(Reader& reader, shard::ShardConfig sharding) {
  const YamlNode* node = reader.child("reshard_after_forward");
  if (node == nullptr) {
    return sharding;
  }
  const ScalarKind kind =
      node->kind == YamlKind::kScalar && !node->quoted ? scalar_kind(node->text) : ScalarKind::kString;
  if (kind == ScalarKind::kBoolean) {
    sharding.reshard_after_forward = reader.boolean("reshard_after_forward");
  } else if (kind == ScalarKind::kInteger) {
    sharding.reshard_after_forward_size = reader.integer("reshard_after_forward", kCount);
  } else {
    reader.diagnostics().add("sharding.reshard_after_forward",
                             "expected true, false or an integer, found " + describe_found(*node));
  }
  return sharding;
}

// auto | block | a list of module name suffixes.
shard::ShardConfig read_wrap(Reader& reader, shard::ShardConfig sharding) {
  constexpr Choice<shard::WrapKind> kWords[] = {{"auto", shard::WrapKind::kAuto}, {"block", shard::WrapKind::kBlock}};
  const YamlNode* node = reader.child("wrap");
  if (node != nullptr && node->kind == YamlKind::kList) {
    sharding.wrap = shard::WrapKind::kModules;
    sharding.wrap_modules = reader.texts("wrap").value_or(sharding.wrap_modules);
    return sharding;
  }
  sharding.wrap = reader.choice("wrap", kWords).value_or(sharding.wrap);
  return sharding;
}

}  // namespace

std::optional<peft::AdapterConfig> read_adapter(Reader& root) {
  Reader reader = root.map("adapter");
  peft::AdapterConfig adapter;
  adapter.type = reader.choice("type", kAdapterTypes).value_or(adapter.type);
  adapter.r = reader.integer("r", kCount).value_or(adapter.r);
  adapter.lora_alpha = reader.number("lora_alpha", kAboveZero).value_or(adapter.lora_alpha);
  adapter.lora_dropout = reader.number("lora_dropout", kBelowOne).value_or(adapter.lora_dropout);
  adapter = read_targets(reader, std::move(adapter));
  adapter.use_rslora = reader.boolean("use_rslora").value_or(adapter.use_rslora);
  adapter.use_dora = reader.boolean("use_dora").value_or(adapter.use_dora);
  adapter.lora_bias = reader.boolean("lora_bias").value_or(adapter.lora_bias);
  adapter.bias = reader.choice("bias", kLoraBiases).value_or(adapter.bias);
  adapter.init_lora_weights = read_lora_init(reader);
  adapter.dtype = reader.choice("dtype", kWeightDtypes).value_or(adapter.dtype);
  adapter.path = reader.text("path");
  reader.finish();
  return reader.is_absent() ? std::nullopt : std::optional(adapter);
}

std::optional<quant::QuantizationConfig> read_quantization(Reader& root) {
  Reader reader = root.map("quantization");
  quant::QuantizationConfig config;
  config.bnb_4bit_quant_type = reader.choice("bnb_4bit_quant_type", kQuantTypes).value_or(config.bnb_4bit_quant_type);
  config.bnb_4bit_use_double_quant =
      reader.boolean("bnb_4bit_use_double_quant").value_or(config.bnb_4bit_use_double_quant);
  config.bnb_4bit_compute_dtype =
      reader.choice("bnb_4bit_compute_dtype", kWeightDtypes).value_or(config.bnb_4bit_compute_dtype);
  config.blocksize = reader.integer("blocksize", kCount).value_or(config.blocksize);
  reader.finish();
  return reader.is_absent() ? std::nullopt : std::optional(config);
}

shard::ShardConfig read_sharding(Reader& root) {
  Reader reader = root.map("sharding");
  shard::ShardConfig sharding;
  sharding.strategy = reader.choice("strategy", kStrategies).value_or(sharding.strategy);
  sharding = read_reshard(reader, std::move(sharding));
  sharding.hybrid_shard_size = reader.integer("hybrid_shard_size", kCount);
  sharding.cpu_offload = reader.boolean("cpu_offload").value_or(sharding.cpu_offload);
  sharding.prefetch = reader.integer("prefetch", {0, 1024}).value_or(sharding.prefetch);
  sharding.param_dtype = reader.choice("param_dtype", kParamDtypes);
  sharding.reduce_dtype = reader.choice("reduce_dtype", kParamDtypes).value_or(sharding.reduce_dtype);
  sharding = read_wrap(reader, std::move(sharding));
  reader.finish();
  return sharding;
}

}  // namespace stft::recipe
