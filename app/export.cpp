#include "export.h"

#include <fmt/format.h>

#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/base_identity.h"
#include "checkpoint/export_model.h"
#include "checkpoint/quantization_file.h"
#include "exit_codes.h"
#include "locate_model.h"
#include "output_directory.h"
#include "peft/adapter_file.h"
#include "train/merge_drift.h"

namespace stft::app {

namespace {

constexpr double kLargestRoundingDrift = 1e-4;

// With --base-model an adapter's own word on its base is not asked.
LocatedModel locate(const ExportOptions& options) {
  if (options.base_model.empty()) {
    const BaseUse use = options.merges_lora ? BaseUse::kModel : BaseUse::kModules;
    return locate_model({options.checkpoint, options.revision, hub::Wanted::kModel, use});
  }
  if (!peft::is_adapter_directory(options.checkpoint)) {
    throw UserError("--base-model: '" + options.checkpoint +
                    "' is no adapter; other checkpoints without a model of "
                    "their own are not available yet");
  }
  const std::string base = locate_model({options.base_model}).directory;
  if (peft::is_adapter_directory(base)) {
    throw UserError("--base-model: '" + options.base_model + "' is an adapter itself");
  }
  return {options.checkpoint, std::nullopt, base};
}

// The quantization of the base that the adapter was trained on, when the merge is to know of it.
std::optional<quant::QuantizationConfig> quantization_of(const ExportOptions& options, const LocatedModel& located) {
  if (!options.merges_lora) {
    if (options.base) {
      throw UserError("--base: is for --merge-lora");
    }
    return std::nullopt;
  }
  const auto record = checkpoint::read_quantization_file(located.directory);
  if (options.base == MergeBase::kDequantized && !record) {
    throw UserError(
        fmt::format("--base dequantized: '{}' has no {}, so it was not trained on a quantized base; use original",
                    options.checkpoint, checkpoint::kQuantizationFile));
  }
  return record ? std::optional(record->config) : std::nullopt;
}

void tell_about_merge(const ExportOptions& options, const LocatedModel& located,
                      const quant::QuantizationConfig& quantization) {
  const bool is_dequantized = options.base == MergeBase::kDequantized;
  log::info(fmt::format("the adapter is merged into the {} base {}",
                        is_dequantized ? "de-quantized" : "original", located.base));
  train::MergeDrift drift;
  try {
    drift = train::merge_drift({options.out, located.directory, located.base, quantization});
  } catch (const std::exception& error) {
    log::warn(
        fmt::format("how far it is from the adapter on the quantized base could not be measured: {}", error.what()));
    return;
  }
  log::info(fmt::format("largest cosine drift from the adapter on the quantized base, on {} probe texts: {:.3g}",
                        drift.texts, drift.largest));
  if (is_dequantized && drift.largest > kLargestRoundingDrift) {
    log::warn("the weights were rounded to the type that they are written in; --dtype fp32 keeps what was trained");
  }
}

}  // namespace

int run_export(const ExportOptions& options) {
  std::string out = output_directory(options.out, options.checkpoint, options.overwrites);
  const LocatedModel located = locate(options);
  out = output_directory(options.out, located.directory, options.overwrites);
  const auto quantization = quantization_of(options, located);
  checkpoint::ExportOptions exporting{options.precision, out, located.base, options.merges_lora};
  if (options.base == MergeBase::kDequantized) {
    exporting.dequantized_base = quantization;
  }
  if (options.merges_lora) {
    if (const auto warning = checkpoint::other_base_warning(located.directory, located.base)) {
      log::warn(*warning);
    }
  }
  checkpoint::export_directory(located.directory, exporting);
  if (quantization) {
    tell_about_merge(options, located, *quantization);
  }
  const bool stays_adapter = peft::is_adapter_directory(located.directory) && !options.merges_lora;
  log::info((stays_adapter ? "the adapter is in " : "the model is in ") + options.out);
  return kDone;
}

}  // namespace stft::app
