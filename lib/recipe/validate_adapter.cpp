// The block `adapter:`.
#include <bit>
#include <string>

#include "recipe/files.h"
#include "recipe/validate.h"

namespace stft::recipe {

namespace {

// Weights are de-quantized into the type that everything is computed in.
void check_quantization(const Recipe& recipe, Diagnostics& diagnostics) {
  const bool is_qlora = recipe.adapter && recipe.adapter->type == peft::AdapterType::kQlora;
  if (!recipe.quantization) {
    if (is_qlora) {
      diagnostics.add("adapter.type", "qlora needs a block quantization; bnb_4bit_quant_type: nf4 is the usual choice");
    }
    return;
  }
  if (!is_qlora) {
    diagnostics.add("quantization", "is for adapter.type: qlora");
  }
  const quant::QuantizationConfig& config = *recipe.quantization;
  constexpr int64_t kSmallest = 32, kLargest = 4096;
  if (!std::has_single_bit(static_cast<uint64_t>(config.blocksize)) || config.blocksize < kSmallest ||
      config.blocksize > kLargest) {
    diagnostics.add("quantization.blocksize",
                    "expected a power of two from 32 to 4096, found " + std::to_string(config.blocksize));
  }
  const auto compute =
      recipe.sharding.param_dtype.value_or(recipe.train.bf16 ? shard::ParamDtype::kBf16 : shard::ParamDtype::kFp32);
  const bool is_bf16 = compute == shard::ParamDtype::kBf16;
  if (config.bnb_4bit_compute_dtype == (is_bf16 ? quant::WeightDtype::kFp32 : quant::WeightDtype::kBf16)) {
    diagnostics.add("quantization.bnb_4bit_compute_dtype",
                    is_bf16 ? "fp32 (also the default) contradicts train.bf16 or sharding.param_dtype: set bf16"
                            : "bf16 contradicts computing in fp32: set train.bf16: true, or fp32 here");
  }
}

}  // namespace

void check_adapter(const Recipe& recipe, Diagnostics& diagnostics) {
  check_quantization(recipe, diagnostics);
  if (!recipe.adapter) {
    return;
  }
  const peft::AdapterConfig& adapter = *recipe.adapter;
  const bool is_text = !adapter.target_modules.empty() && !adapter.target_modules_is_list;
  if (is_text && adapter.layers_to_transform) {
    diagnostics.add("adapter.layers_to_transform",
                    "needs a list of target_modules, found \"" + adapter.target_modules.front() + "\"");
  }
  if (adapter.use_dora && adapter.lora_bias) {
    diagnostics.add("adapter.lora_bias", "contradicts use_dora, which has no bias of B");
  }
  if (adapter.init_lora_weights != peft::LoraInit::kTrue && adapter.lora_bias) {
    diagnostics.add("adapter.lora_bias", "needs init_lora_weights: true, as in PEFT");
  }
  if (adapter.target_modules_is_list && adapter.target_modules.empty() && !adapter.path) {
    diagnostics.add("adapter.target_modules", "names no module");
  }
  if (adapter.path && !peft::is_adapter_directory(*adapter.path)) {
    diagnostics.add("adapter.path", "'" + *adapter.path +
                                        "' is no directory of an adapter: it holds no "
                                        "adapter_config.json, or a whole model");
  }
}

}  // namespace stft::recipe
