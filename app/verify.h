// `stft verify`.
#pragma once

#include <string>

namespace stft::app {

// Reads a whole checkpoint and compares it with its manifest. What it holds goes to standard output; every fault is
// named by the UserError that ends the command.
int run_verify(const std::string& checkpoint);

}  // namespace stft::app
