// Three kinds of failure, told apart by who has to act (exit codes: recipe.md of the design, README).
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace stft {

// Something the user supplied is missing, malformed, incomplete or refused. The message names file:line or key path,
// what was found and what is allowed. Exit code 2, no stack trace.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A system call, CUDA or a collective failed, or a rank died. The message names the operation, the path or call and
// the reason. Exit code 1.
class SystemError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A collective failed. Mostly the echo of another rank's failure, so the launcher looks for that one first. Exit
// code 1.
class CollectiveError : public SystemError {
 public:
  using SystemError::SystemError;
};

// A bug of stft itself. Exit code 70.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Throws SystemError "<operation> '<path>': <strerror(error_number)>".
[[noreturn]] void throw_errno(std::string_view operation, std::string_view path, int error_number);

// Throws InternalError with the location; used by STFT_CHECK.
[[noreturn]] void throw_internal(std::string_view condition, std::string_view message,
                                 std::source_location where = std::source_location::current());

}  // namespace stft

// An invariant that no input may break. `message` is evaluated only on failure.
#define STFT_CHECK(condition, message)               \
  do {                                               \
    if (!(condition)) [[unlikely]] {                 \
      ::stft::throw_internal(#condition, (message)); \
    }                                                \
  } while (false)
