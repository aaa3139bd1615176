#include "state_dict.h"

#include "base/log.h"
#include "checkpoint/convert.h"
#include "exit_codes.h"
#include "output_directory.h"

namespace stft::app {

int run_state_dict(const StateDictOptions& options) {
  const std::string out = output_directory(options.out, options.checkpoint, options.overwrites);
  checkpoint::convert_checkpoint(options.checkpoint, {options.mode, options.ranks, out});
  log::info("the checkpoint is in " + options.out);
  return kDone;
}

}  // namespace stft::app
