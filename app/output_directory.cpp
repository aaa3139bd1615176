#include "output_directory.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "io/file.h"

namespace stft::app {

void check_output_directory(const std::string& out, const std::string& input, bool overwrites) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (io::lies_in(input, out)) {
    throw UserError(fmt::format("--out: writing '{}' would replace '{}', which is read", out, input));
  }
  if (io::lies_in(out, input)) {
    throw UserError(fmt::format("--out: '{}' lies in '{}', which is read and stays as it is", out, input));
  }
  if (!fs::exists(out, error)) {
    return;
  }
  if (!fs::is_directory(out, error)) {
    throw UserError(fmt::format("--out: '{}' is not a directory", out));
  }
  if (!fs::is_empty(out, error) && !overwrites) {
    throw UserError(fmt::format("--out: '{}' is not empty; use another directory or --overwrite", out));
  }
}

}  // namespace stft::app
