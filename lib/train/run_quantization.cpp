#include "train/run_quantization.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/quantization_file.h"
#include "recipe/choices.h"

namespace stft::train {
namespace {

bool are_equal(const quant::QuantizationConfig& a, const quant::QuantizationConfig& b) {
  return a.bnb_4bit_quant_type == b.bnb_4bit_quant_type && a.bnb_4bit_use_double_quant == b.bnb_4bit_use_double_quant &&
         a.blocksize == b.blocksize;
}

}  // namespace

recipe::Recipe with_stored_quantization(recipe::Recipe recipe, bool tells) {
  if (recipe.model.base.empty()) {
    return recipe;
  }
  const std::string directory = recipe.model.directory();
  const auto record = checkpoint::read_quantization_file(directory);
  if (!record) {
    return recipe;
  }
  const bool is_same = recipe.quantization && are_equal(*recipe.quantization, record->config);
  if (tells && !is_same) {
    log::warn(fmt::format("the base is quantized as {} of '{}' says, not as the recipe does",
                          checkpoint::kQuantizationFile, directory));
  }
  recipe.quantization = record->config;
  return recipe;
}

void tell_about_other_quantization(const Run& run) {
  const recipe::Recipe& recipe = run.recipe;
  if (!recipe.adapter || !recipe.adapter->path || !recipe.model.base.empty()) {
    return;
  }
  const auto record = checkpoint::read_quantization_file(*recipe.adapter->path);
  if (record && !(recipe.quantization && are_equal(*recipe.quantization, record->config))) {
    log::warn(fmt::format("{}: was trained on a quantized base, {}", recipe::where(recipe, "adapter.path"),
                          recipe.quantization ? "with other values of quantization" : "which this run does not have"));
  }
}

void tell_about_quantized(const Run& run) {
  const checkpoint::QuantizedBase& base = *run.quantized;
  const quant::QuantizationConfig& config = *run.recipe.quantization;
  const bool is_stored = base.stored_count() > 0;
  const std::string form =
      is_stored
          ? "as they are stored in 4 bits"
          : fmt::format("in {} of blocks of {}{}", recipe::name_of(recipe::kQuantTypes, config.bnb_4bit_quant_type),
                        config.blocksize, config.bnb_4bit_use_double_quant ? ", doubly quantized" : "");
  log::info(fmt::format("quantized base: {} weights {}: {:.1f} MB, where fp32 has {:.1f} MB", base.count(), form,
                        static_cast<double>(base.packed_bytes()) / 1e6, static_cast<double>(base.float_bytes()) / 1e6));
  if (is_stored) {
    log::info("quantized base: what the model's files leave whole stays so, whatever the block quantization says");
  }
  for (const std::string& name : base.kept_single()) {
    log::warn(
        fmt::format("quantization.bnb_4bit_use_double_quant: {} has values far larger than its others; its "
                    "statistics stay fp32",
                    name));
  }
}

std::map<std::string, std::string> quantization_texts(const Run& run) {
  if (!run.quantized) {
    return {};
  }
  return {
      {checkpoint::kQuantizationFile, checkpoint::to_json({run.recipe.quantization.value(), run.quantized_base_hash})}};
}

bool is_other_base(const Run& run, const std::string& directory) {
  const auto record = run.quantized ? checkpoint::read_quantization_file(directory) : std::nullopt;
  return record && record->base_hash != run.quantized_base_hash;
}

void check_quantized_base(Run& run) {
  if (run.quantized) {
    const uint64_t hash = run.engine->packed_checksum();
    STFT_CHECK(hash == run.quantized_base_hash, "a quantized base does not change");
  }
}

}  // namespace stft::train
