// Results of commands.
#pragma once

#include <string>

namespace stft::app {

// To standard output, at once. SystemError when it cannot be written.
void write_result(const std::string& text);

}  // namespace stft::app
