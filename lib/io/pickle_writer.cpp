#include "io/pickle_writer.h"

#include <bit>
#include <limits>
#include <type_traits>

#include "base/error.h"

namespace stft::io {
namespace {

template <typename Integer>
void append_little_endian(std::string& bytes, Integer value) {
  for (std::size_t i = 0; i < sizeof(value); ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
}

}  // namespace

PickleWriter::PickleWriter() : bytes_("\x80\x02") {}

PickleWriter& PickleWriter::opcode(char code) {
  bytes_ += code;
  return *this;
}

PickleWriter& PickleWriter::none() {
  return opcode('N');
}

PickleWriter& PickleWriter::boolean(bool value) {
  return opcode(value ? '\x88' : '\x89');
}

PickleWriter& PickleWriter::integer(std::int64_t value) {
  if (value >= 0 && value <= std::numeric_limits<std::uint8_t>::max()) {
    opcode('K');
    append_little_endian(bytes_, static_cast<std::uint8_t>(value));
  } else if (value >= 0 && value <= std::numeric_limits<std::uint16_t>::max()) {
    opcode('M');
    append_little_endian(bytes_, static_cast<std::uint16_t>(value));
  } else if (value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max()) {
    opcode('J');
    append_little_endian(bytes_, static_cast<std::uint32_t>(value));
  } else {
    opcode('\x8a').opcode('\x08');
    append_little_endian(bytes_, static_cast<std::uint64_t>(value));
  }
  return *this;
}

PickleWriter& PickleWriter::number(double value) {
  opcode('G');
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int shift = 56; shift >= 0; shift -= 8) bytes_ += static_cast<char>(bits >> shift & 0xFF);  // big-endian
  return *this;
}

PickleWriter& PickleWriter::string(std::string_view utf8) {
  STFT_CHECK(utf8.size() <= std::numeric_limits<std::uint32_t>::max(), "a string of 4 GiB or more");
  opcode('X');
  append_little_endian(bytes_, static_cast<std::uint32_t>(utf8.size()));
  bytes_ += utf8;
  return *this;
}

PickleWriter& PickleWriter::value(const PythonValue& value) {
  std::visit(
      [this](const auto& content) {
        using Type = std::decay_t<decltype(content)>;
        if constexpr (std::is_same_v<Type, PythonNone>) {
          none();
        } else if constexpr (std::is_same_v<Type, bool>) {
          boolean(content);
        } else if constexpr (std::is_same_v<Type, std::int64_t>) {
          integer(content);
        } else if constexpr (std::is_same_v<Type, double>) {
          number(content);
        } else if constexpr (std::is_same_v<Type, std::string>) {
          string(content);
        } else if constexpr (std::is_same_v<Type, PythonTuple>) {
          begin_tuple();
          for (const PythonValue& item : content.items) this->value(item);
          end_tuple();
        } else {
          begin_list();
          for (const PythonValue& item : content.items) this->value(item);
          end_list();
        }
      },
      value.value);
  return *this;
}

PickleWriter& PickleWriter::begin_tuple() {
  return opcode('(');
}

PickleWriter& PickleWriter::end_tuple() {
  return opcode('t');
}

PickleWriter& PickleWriter::begin_list() {
  return opcode(']').opcode('(');
}

PickleWriter& PickleWriter::end_list() {
  return opcode('e');
}

PickleWriter& PickleWriter::begin_dict() {
  return opcode('}').opcode('(');
}

PickleWriter& PickleWriter::end_dict() {
  return opcode('u');
}

PickleWriter& PickleWriter::global(std::string_view qualified_name) {
  const std::size_t dot = qualified_name.rfind('.');
  STFT_CHECK(dot != std::string_view::npos && qualified_name.find('\n') == std::string_view::npos,
             "a class needs a module and a name");
  opcode('c');
  bytes_ += qualified_name.substr(0, dot);
  bytes_ += '\n';
  bytes_ += qualified_name.substr(dot + 1);
  bytes_ += '\n';
  return *this;
}

PickleWriter& PickleWriter::call() {
  return opcode('R');
}

PickleWriter& PickleWriter::new_object() {
  return opcode(')').opcode('\x81');
}

PickleWriter& PickleWriter::set_state() {
  return opcode('b');
}

PickleWriter& PickleWriter::persistent_id() {
  return opcode('Q');
}

std::string PickleWriter::finish() {
  opcode('.');
  return std::move(bytes_);
}

}  // namespace stft::io
