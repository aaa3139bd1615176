#include "verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "checkpoint/verify.h"
#include "exit_codes.h"
#include "standard_output.h"

namespace stft::app {

int run_verify(const std::string& checkpoint) {
  const checkpoint::Verification found = checkpoint::verify_checkpoint(checkpoint);
  if (!found.faults.empty()) {
    throw UserError(fmt::format("'{}' is not whole:\n{}", checkpoint, fmt::join(found.faults, "\n")));
  }
  write_result(checkpoint + ": whole: " + found.summary + "\n");
  return kDone;
}

}  // namespace stft::app
