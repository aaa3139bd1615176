#include "base/error.h"

#include <cstring>

namespace stft {

void throw_errno(std::string_view operation, std::string_view path, int error_number) {
  std::string text(operation);
  text.append(" '").append(path).append("': ").append(std::strerror(error_number));
  throw SystemError(text);
}

void throw_internal(std::string_view condition, std::string_view message, std::source_location where) {
  std::string text(where.file_name());
  text.append(":").append(std::to_string(where.line())).append(": check failed: ").append(condition);
  if (!message.empty()) {
    text.append(": ").append(message);
  }
  throw InternalError(text);
}

}  // namespace stft
