// Where a command that writes a directory may write.
#pragma once

#include <string>

namespace stft::app {

// UserError when `out` (--out) is a file, holds something and `overwrites` is false, or replacing it would take `input`
// with it.
void check_output_directory(const std::string& out, const std::string& input, bool overwrites);

}  // namespace stft::app
