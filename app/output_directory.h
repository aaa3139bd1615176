// Where a command that writes a directory may write.
#pragma once

#include <string>

namespace stft::app {

// The directory that `out` (--out) names, as an absolute path without a slash at its end. UserError when it is a file,
// holds something and `overwrites` is false, holds a run with its checkpoints, or has `input` in it or around it.
std::string output_directory(const std::string& out, const std::string& input, bool overwrites);

}  // namespace stft::app
