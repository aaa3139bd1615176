#include "export.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/export_model.h"
#include "exit_codes.h"
#include "output_directory.h"

namespace stft::app {

int run_export(const ExportOptions& options) {
  const std::string out = output_directory(options.out, options.checkpoint, options.overwrites);
  if (options.merges_lora) {
    throw UserError("--merge-lora: '" + options.checkpoint + "' has no adapter, so there is nothing to merge");
  }
  checkpoint::export_directory(options.checkpoint, {options.precision, out});
  log::info("the model is in " + options.out);
  return kDone;
}

}  // namespace stft::app
