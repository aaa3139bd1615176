#include "export.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/export_model.h"
#include "exit_codes.h"
#include "locate_model.h"
#include "output_directory.h"

namespace stft::app {

int run_export(const ExportOptions& options) {
  std::string out = output_directory(options.out, options.checkpoint, options.overwrites);
  if (options.merges_lora) {
    throw UserError("--merge-lora: '" + options.checkpoint + "' has no adapter, so there is nothing to merge");
  }
  const std::string checkpoint = locate_model({options.checkpoint, options.revision}).directory;
  out = output_directory(options.out, checkpoint, options.overwrites);
  checkpoint::export_directory(checkpoint, {options.precision, out});
  log::info("the model is in " + options.out);
  return kDone;
}

}  // namespace stft::app
