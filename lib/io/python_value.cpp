#include "io/python_value.h"

#include <fmt/format.h>

#include <type_traits>

namespace stft::io {
namespace {

std::string joined(const std::vector<PythonValue>& items) {
  std::string text;
  for (const PythonValue& item : items) {
    if (!text.empty()) text += ", ";
    text += to_text(item);
  }
  return text;
}

}  // namespace

bool operator==(const PythonValue& left, const PythonValue& right) {
  if (left.value.index() != right.value.index()) return false;
  return std::visit(
      [&](const auto& a) {
        using Type = std::decay_t<decltype(a)>;
        const auto& b = std::get<Type>(right.value);
        if constexpr (std::is_same_v<Type, PythonNone>) {
          return true;
        } else if constexpr (std::is_same_v<Type, PythonTuple> || std::is_same_v<Type, PythonList>) {
          return a.items == b.items;
        } else {
          return a == b;
        }
      },
      left.value);
}

std::string to_text(const PythonValue& value) {
  return std::visit(
      [](const auto& content) -> std::string {
        using Type = std::decay_t<decltype(content)>;
        if constexpr (std::is_same_v<Type, PythonNone>) {
          return "None";
        } else if constexpr (std::is_same_v<Type, bool>) {
          return content ? "True" : "False";
        } else if constexpr (std::is_same_v<Type, std::string>) {
          return "'" + content + "'";
        } else if constexpr (std::is_same_v<Type, PythonTuple>) {
          return "(" + joined(content.items) + (content.items.size() == 1 ? ",)" : ")");
        } else if constexpr (std::is_same_v<Type, PythonList>) {
          return "[" + joined(content.items) + "]";
        } else {
          return fmt::format("{}", content);
        }
      },
      value.value);
}

}  // namespace stft::io
