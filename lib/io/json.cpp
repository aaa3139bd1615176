#include "io/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "io/file.h"
#include "io/utf8.h"

namespace stft::io {
namespace {

// Walks over the text and notes how far the parser has read, which the parser's callbacks are not told.
class CountingIterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator() = default;
  CountingIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_ = nullptr;
  const char** furthest_ = nullptr;
};

std::string without_library_prefix(std::string_view message) {
  // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error while ..."
  const std::size_t bracket = message.find("] ");
  if (bracket != std::string_view::npos) message.remove_prefix(bracket + 2);
  if (message.starts_with("parse error at ")) {
    const std::size_t colon = message.find(": ");
    if (colon != std::string_view::npos) message.remove_prefix(colon + 2);
  }
  constexpr std::size_t kLongest = 300;
  return std::string(message.substr(0, kLongest));
}

// serde_json takes the digits that fit 64 bits for a whole number, rounds that to a double, and multiplies or divides
// by one power of ten: two roundings instead of one. `text` is a JSON number that is not too large for a double.
double serde_float(std::string_view text) {
  constexpr int kLargestPower = 308;
  std::uint64_t digits = 0;
  std::int64_t exponent = 0;
  bool is_full = false;
  bool is_fraction = false;
  const std::size_t exponent_at = std::min(text.find_first_of("eE"), text.size());
  for (const char c : text.substr(0, exponent_at)) {
    if (c == '.') {
      is_fraction = true;
    } else if (c != '-') {
      const auto digit = static_cast<std::uint64_t>(c - '0');
      is_full = is_full || digits > (UINT64_MAX - digit) / 10;
      digits = is_full ? digits : digits * 10 + digit;
      exponent += (is_full ? 1 : 0) - (is_fraction ? 1 : 0);
    }
  }
  if (exponent_at < text.size()) {
    const std::string written(text.substr(exponent_at + 1));
    exponent += std::clamp(std::strtol(written.c_str(), nullptr, 10), -100'000L, 100'000L);
  }
  const auto power = [](std::int64_t of) { return std::strtod(fmt::format("1e{}", of).c_str(), nullptr); };
  auto value = static_cast<double>(digits);
  for (; exponent < -kLargestPower && value != 0; exponent += kLargestPower) {
    value /= power(kLargestPower);
  }
  if (value != 0) {
    value = exponent >= 0 ? value * power(exponent) : value / power(-exponent);
  }
  return text.starts_with('-') ? -value : value;
}

// Builds the value, and refuses what the library's own builder lets pass: duplicate keys and deep nesting.
// The names of the callbacks are the library's.
class StrictBuilder : public nlohmann::json_sax<Json> {
 public:
  StrictBuilder(const char* const* furthest, const char* begin, FloatReading reading)
      : furthest_(furthest), begin_(begin), reading_(reading) {}

  JsonResult take() { return {failure_ ? Json() : std::move(root_), std::move(failure_)}; }

  bool null() override { return add(Json(nullptr)) != nullptr; }
  bool boolean(bool value) override { return add(Json(value)) != nullptr; }
  bool number_integer(number_integer_t value) override { return add(Json(value)) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return add(Json(value)) != nullptr; }
  bool number_float(number_float_t value, const string_t& text) override {
    return add(Json(reading_ == FloatReading::kSerde ? serde_float(text) : value)) != nullptr;
  }
  bool string(string_t& value) override { return add(Json(std::move(value))) != nullptr; }
  bool binary(binary_t&) override { return fail("binary data"); }
  bool start_object(std::size_t) override { return open(Json(Json::value_t::object)); }
  bool start_array(std::size_t) override { return open(Json(Json::value_t::array)); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    const auto [position, is_new] = open_.back()->get_ref<Json::object_t&>().try_emplace(name);
    if (!is_new) return fail(fmt::format("key '{}' is given twice", name.substr(0, 200)));
    slot_ = &position->second;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) override {
    failure_ = JsonFailure{position > 0 ? position - 1 : 0, without_library_prefix(error.what())};
    return false;
  }

 private:
  bool fail(std::string reason) {
    failure_ =
        JsonFailure{static_cast<std::size_t>(std::max<std::ptrdiff_t>(*furthest_ - begin_ - 1, 0)), std::move(reason)};
    return false;
  }

  Json* add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_object()) {
      *slot_ = std::move(value);
      return slot_;
    }
    auto& list = open_.back()->get_ref<Json::array_t&>();
    list.push_back(std::move(value));
    return &list.back();
  }

  bool open(Json container) {
    if (open_.size() >= kMaxJsonDepth) return fail(fmt::format("nested over {} levels", kMaxJsonDepth));
    open_.push_back(add(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  // Containers being filled, outermost first. The addresses hold: a container is closed before its parent grows.
  std::vector<Json*> open_;
  Json* slot_ = nullptr;  // where the value of the last key goes
  std::optional<JsonFailure> failure_;
  const char* const* furthest_;
  const char* begin_;
  FloatReading reading_;
};

struct LineColumn {
  std::size_t line = 1;
  std::size_t column = 1;
};

LineColumn locate(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const std::size_t newline = before.rfind('\n');
  return {static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')) + 1,
          newline == std::string_view::npos ? before.size() + 1 : before.size() - newline};
}

const Json& require(const Json& json, const std::string& key, const std::string& origin) {
  if (!json.is_object()) throw UserError(fmt::format("{}: {} instead of an object", origin, json_type_name(json)));
  const auto found = json.find(key);
  if (found == json.end()) throw UserError(fmt::format("{}: key '{}' is missing", origin, key));
  return *found;
}

[[noreturn]] void throw_type(const Json& value, const std::string& key, const std::string& origin, const char* wanted) {
  throw UserError(fmt::format("{}: key '{}' is {}, it must be {}", origin, key, json_type_name(value), wanted));
}

bool is_absent(const Json& json, const std::string& key) {
  if (!json.is_object()) return false;  // the getter behind reports it
  const auto found = json.find(key);
  return found == json.end() || found->is_null();
}

}  // namespace

JsonResult try_parse_json(std::string_view text, FloatReading reading) {
  if (const auto offset = first_invalid_utf8(text)) return {Json(), JsonFailure{*offset, "not valid UTF-8"}};
  // The library takes a NUL byte for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return {Json(), JsonFailure{nul, "a NUL byte"}};
  }
  const char* furthest = text.data();
  StrictBuilder builder(&furthest, text.data(), reading);
  Json::sax_parse(CountingIterator(text.data(), &furthest), CountingIterator(text.data() + text.size(), &furthest),
                  &builder);
  return builder.take();
}

Json parse_json(std::string_view text, const std::string& origin, FloatReading reading) {
  JsonResult result = try_parse_json(text, reading);
  if (result.failure) {
    const LineColumn at = locate(text, result.failure->offset);
    throw UserError(fmt::format("{}:{}:{}: not valid JSON: {}", origin, at.line, at.column, result.failure->reason));
  }
  return std::move(result.value);
}

Json read_json_file(const std::string& path, FloatReading reading) {
  return parse_json(read_text_file(path), path, reading);
}

std::string json_type_name(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "true or false";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return "a number";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::object:
      return "an object";
    default:
      return "a value of unknown type";
  }
}

std::string get_string(const Json& json, const std::string& key, const std::string& origin) {
  const Json& value = require(json, key, origin);
  if (!value.is_string()) throw_type(value, key, origin, "a string");
  return value.get<std::string>();
}

std::int64_t get_int(const Json& json, const std::string& key, const std::string& origin) {
  const Json& value = require(json, key, origin);
  if (!value.is_number_integer()) throw_type(value, key, origin, "an integer");
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    throw UserError(fmt::format("{}: key '{}' is too large: {}", origin, key, value.get<std::uint64_t>()));
  }
  return value.get<std::int64_t>();
}

double get_double(const Json& json, const std::string& key, const std::string& origin) {
  const Json& value = require(json, key, origin);
  if (!value.is_number()) throw_type(value, key, origin, "a number");
  return value.get<double>();
}

bool get_bool(const Json& json, const std::string& key, const std::string& origin) {
  const Json& value = require(json, key, origin);
  if (!value.is_boolean()) throw_type(value, key, origin, "true or false");
  return value.get<bool>();
}

std::optional<std::string> optional_string(const Json& json, const std::string& key, const std::string& origin) {
  if (is_absent(json, key)) return std::nullopt;
  return get_string(json, key, origin);
}

std::optional<std::int64_t> optional_int(const Json& json, const std::string& key, const std::string& origin) {
  if (is_absent(json, key)) return std::nullopt;
  return get_int(json, key, origin);
}

std::optional<double> optional_double(const Json& json, const std::string& key, const std::string& origin) {
  if (is_absent(json, key)) return std::nullopt;
  return get_double(json, key, origin);
}

std::optional<bool> optional_bool(const Json& json, const std::string& key, const std::string& origin) {
  if (is_absent(json, key)) return std::nullopt;
  return get_bool(json, key, origin);
}

}  // namespace stft::io
