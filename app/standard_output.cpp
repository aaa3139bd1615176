#include "standard_output.h"

#include <cerrno>
#include <cstdio>

#include "base/error.h"

namespace stft::app {

void write_result(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw_errno("cannot write to", "stdout", errno);
  }
}

}  // namespace stft::app
