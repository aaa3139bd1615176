// Exit codes of the contract (README).
#pragma once

#include "dist/launch.h"

namespace stft::app {

enum ExitCode : int {
  kDone = 0,
  kFailed = 1,                        // a system call, CUDA or a collective failed, or a rank died
  kUserMistake = 2,                   // recipe, flag, data, model or tokenizer
  kInternalError = 70,                // our bug
  kStopped = dist::kStoppedExitCode,  // stopped by a signal, after a complete checkpoint was saved
};

}  // namespace stft::app
