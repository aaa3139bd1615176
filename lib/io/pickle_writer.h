// Emission of Python pickles, protocol 2, without a memo.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "io/python_value.h"

namespace stft::io {

// A stack machine's program, instruction by instruction; every call leaves what it names on the reader's stack. The
// caller keeps the order: what a tuple, list or dict holds goes between begin_*() and end_*().
class PickleWriter {
 public:
  PickleWriter();

  PickleWriter& none();
  PickleWriter& boolean(bool value);
  PickleWriter& integer(std::int64_t value);
  PickleWriter& number(double value);
  PickleWriter& string(std::string_view utf8);  // shorter than 4 GiB
  PickleWriter& value(const PythonValue& value);

  PickleWriter& begin_tuple();
  PickleWriter& end_tuple();
  PickleWriter& begin_list();
  PickleWriter& end_list();
  PickleWriter& begin_dict();  // key, value, key, value, ...
  PickleWriter& end_dict();

  PickleWriter& global(std::string_view qualified_name);  // a class or function: "collections.OrderedDict"
  PickleWriter& call();                                   // function, tuple of arguments -> its result
  PickleWriter& new_object();                             // class -> an empty object of it
  PickleWriter& set_state();                              // object, state -> the object
  PickleWriter& persistent_id();                          // tuple -> the outside object it names

  // The whole pickle; exactly one value must be on the stack. The writer is used up.
  std::string finish();

 private:
  PickleWriter& opcode(char code);

  std::string bytes_;
};

}  // namespace stft::io
