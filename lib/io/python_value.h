// The plain Python values that a checkpoint holds beside tensors.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace stft::io {

struct PythonValue;

struct PythonNone {};

struct PythonTuple {
  std::vector<PythonValue> items;
};

struct PythonList {
  std::vector<PythonValue> items;
};

struct PythonValue {
  std::variant<PythonNone, bool, std::int64_t, double, std::string, PythonTuple, PythonList> value;
};

// The same kinds with the same content (1 and 1.0 and true are different); floats compare as numbers.
bool operator==(const PythonValue& left, const PythonValue& right);

// As Python prints it, roughly: "None", "True", "0.001", "(0.9, 0.999)", "['a', 'b']". For messages.
std::string to_text(const PythonValue& value);

}  // namespace stft::io
