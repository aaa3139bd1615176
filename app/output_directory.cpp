#include "output_directory.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "checkpoint/checkpoint_store.h"
#include "io/file.h"

namespace stft::app {

std::string output_directory(const std::string& out, const std::string& input, bool overwrites) {
  namespace fs = std::filesystem;
  std::error_code error;
  // Links are resolved, so that what a link names is replaced and not the link.
  fs::path path = fs::weakly_canonical(fs::absolute(out), error);
  if (error || out.empty()) {
    throw UserError(fmt::format("--out: '{}' cannot be used{}", out, error ? ": " + error.message() : ""));
  }
  if (!path.has_filename()) {
    path = path.parent_path();
  }
  if (io::lies_in(input, out)) {
    throw UserError(fmt::format("--out: writing '{}' would replace '{}', which is read", out, input));
  }
  if (io::lies_in(out, input)) {
    throw UserError(fmt::format("--out: '{}' lies in '{}', which is read and stays as it is", out, input));
  }
  if (!fs::exists(path, error)) {
    return path.string();
  }
  if (!fs::is_directory(path, error)) {
    throw UserError(fmt::format("--out: '{}' is not a directory", out));
  }
  if (!fs::is_empty(path, error) && !overwrites) {
    throw UserError(fmt::format("--out: '{}' is not empty; use another directory or --overwrite", out));
  }
  if (!checkpoint::checkpoint_steps(path.string()).empty() || fs::exists(path / "log.jsonl", error)) {
    throw UserError(fmt::format("--out: '{}' holds a run, which --overwrite does not replace here", out));
  }
  return path.string();
}

}  // namespace stft::app
