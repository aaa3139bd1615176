// Reading of Python pickles as data: nothing is called or imported, and bytes from anywhere are safe to read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/python_value.h"

namespace stft::io {

enum class PickleKind {
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kTuple,
  kList,
  kDict,
  kGlobal,       // a class or function
  kCall,         // a function and its arguments, not called
  kObject,       // a class, the arguments of its __new__, and its state
  kPersistentId  // the tuple that names an object outside
};

// One value. Values may be shared, and with hostile input a list may contain itself: a walk over unknown values needs
// limits of its own (to_python has them).
struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  int depth = 0;             // levels below, as far as known when it was made
  std::int64_t integer = 0;  // kInt; kBool: 0 or 1
  double number = 0;         // kFloat
  std::string text;          // kString; "module.name" of kGlobal, kCall and kObject
  // kTuple, kList: the items; kDict: key, value, key, value, ... as written, duplicates included; kCall and
  // kPersistentId: the argument; kObject: the arguments and, once set, the state.
  std::vector<const PickleValue*> items;
};

struct PickleLimits {
  std::uint64_t bytes = std::uint64_t{1} << 30;
  std::uint64_t values = std::uint64_t{1} << 24;  // values, memo entries and stack entries, each
  int nesting = 64;
};

// The values of one pickle; they live as long as this (moving keeps them valid).
class PickleDocument {
 public:
  const PickleValue& root() const { return *root_; }

 private:
  friend class PickleMachine;
  std::deque<PickleValue> values_;
  const PickleValue* root_ = nullptr;
};

// What to read and what to allow. `origin`: path and position for messages. Protocols 2 to 5, of them the instructions
// that plain containers, numbers, strings and objects need; integers of 64 bits.
struct PickleSource {
  std::string_view bytes;
  std::string origin;
  std::span<const std::string_view> globals;  // "module.name"; every other class or function is refused
  PickleLimits limits;
};

// UserError "<origin>: ..." with the byte for malformed or truncated bytes, an unknown instruction, a class or function
// outside `globals` (it is named), a limit that is exceeded, and bytes after the end.
PickleDocument read_pickle(const PickleSource& source);

// The value as plain data. UserError when a class or function occurs in it, a dict, or more than a million values.
PythonValue to_python(const PickleValue& value, const std::string& origin);

}  // namespace stft::io
