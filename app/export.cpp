#include "export.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/export_model.h"
#include "exit_codes.h"
#include "locate_model.h"
#include "output_directory.h"
#include "peft/adapter_file.h"

namespace stft::app {

namespace {

// With --base-model an adapter's own word on its base is not asked.
LocatedModel locate(const ExportOptions& options) {
  if (options.base_model.empty()) {
    return locate_model({options.checkpoint, options.revision});
  }
  if (!peft::is_adapter_directory(options.checkpoint)) {
    throw UserError("--base-model: '" + options.checkpoint +
                    "' is no adapter; other checkpoints without a model of "
                    "their own are not available yet");
  }
  return {options.checkpoint, std::nullopt, locate_model({options.base_model}).directory};
}

}  // namespace

int run_export(const ExportOptions& options) {
  std::string out = output_directory(options.out, options.checkpoint, options.overwrites);
  const LocatedModel located = locate(options);
  out = output_directory(options.out, located.directory, options.overwrites);
  checkpoint::export_directory(located.directory, {options.precision, out, located.base, options.merges_lora});
  const bool stays_adapter = !located.base.empty() && !options.merges_lora;
  log::info((stays_adapter ? "the adapter is in " : "the model is in ") + options.out);
  return kDone;
}

}  // namespace stft::app
