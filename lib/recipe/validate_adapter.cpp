// The block `adapter:`.
#include <string>

#include "recipe/files.h"
#include "recipe/validate.h"

namespace stft::recipe {

void check_adapter(const Recipe& recipe, Diagnostics& diagnostics) {
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
  if (adapter.path && !is_adapter_directory(*adapter.path)) {
    diagnostics.add("adapter.path", "'" + *adapter.path +
                                        "' is no directory of an adapter: it holds no "
                                        "adapter_config.json, or a whole model");
  }
}

}  // namespace stft::recipe
