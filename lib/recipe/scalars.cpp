#include "recipe/scalars.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string_view>

namespace stft::recipe {

namespace {

constexpr std::string_view kDigits = "0123456789";

bool is_any_of(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (text == word) {
      return true;
    }
  }
  return false;
}

// Removes one sign; `text` keeps the rest.
std::string_view without_sign(std::string_view text) {
  return !text.empty() && (text[0] == '+' || text[0] == '-') ? text.substr(1) : text;
}

// How many digits `text` begins with.
std::size_t count_digits(std::string_view text) {
  const std::size_t end = text.find_first_not_of(kDigits);
  return end == std::string_view::npos ? text.size() : end;
}

bool is_integer(std::string_view text) {
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'o' || text[1] == 'x')) {
    const std::string_view digits = text[1] == 'o' ? "01234567" : "0123456789abcdefABCDEF";
    return text.find_first_not_of(digits, 2) == std::string_view::npos;
  }
  const std::string_view digits = without_sign(text);
  return !digits.empty() && count_digits(digits) == digits.size();
}

bool is_number(std::string_view text) {
  std::string_view rest = without_sign(text);
  if (is_any_of(rest, {".inf", ".Inf", ".INF"}) || is_any_of(text, {".nan", ".NaN", ".NAN"})) {
    return true;
  }
  const std::size_t whole = count_digits(rest);
  rest.remove_prefix(whole);
  std::size_t fraction = 0;
  if (!rest.empty() && rest[0] == '.') {
    fraction = count_digits(rest.substr(1));
    rest.remove_prefix(1 + fraction);
  }
  if (whole + fraction == 0) {
    return false;
  }
  if (rest.empty()) {
    return true;
  }
  const std::string_view exponent = without_sign(rest.substr(1));
  return (rest[0] == 'e' || rest[0] == 'E') && !exponent.empty() && count_digits(exponent) == exponent.size();
}

std::optional<int64_t> parse_integer(std::string_view text) {
  int base = 10;
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'o' || text[1] == 'x')) {
    base = text[1] == 'o' ? 8 : 16;
    text.remove_prefix(2);
  } else if (text[0] == '+') {
    text.remove_prefix(1);
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() ? std::optional<int64_t>(value) : std::nullopt;
}

// Of a text that is_number or is_integer accepts. Too large to hold: infinite.
double parse_number(std::string_view text) {
  if (const std::optional<int64_t> integer = is_integer(text) ? parse_integer(text) : std::nullopt) {
    return static_cast<double>(*integer);
  }
  if (text[0] == '+') {
    text.remove_prefix(1);
  }
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : HUGE_VAL;
}

std::string describe(IntegerRange range) {
  const bool has_low = range.low != std::numeric_limits<int64_t>::min();
  const bool has_high = range.high < std::numeric_limits<int32_t>::max();
  if (has_low && has_high) {
    return fmt::format("must be from {} to {}", range.low, range.high);
  }
  return has_low ? fmt::format("must be at least {}", range.low) : fmt::format("must be at most {}", range.high);
}

std::string describe(NumberRange range) {
  const bool has_low = std::isfinite(range.low);
  const bool has_high = std::isfinite(range.high);
  if (has_low && has_high) {
    return fmt::format("must be {} {} and {} {}", range.open_low ? "above" : "at least", range.low,
                       range.open_high ? "below" : "at most", range.high);
  }
  if (has_low) {
    return fmt::format("must be {} {}", range.open_low ? "above" : "at least", range.low);
  }
  return has_high ? fmt::format("must be {} {}", range.open_high ? "below" : "at most", range.high)
                  : std::string("must be finite");
}

bool contains(NumberRange range, double value) {
  const bool above = range.open_low ? value > range.low : value >= range.low;
  const bool below = range.open_high ? value < range.high : value <= range.high;
  return std::isfinite(value) && above && below;
}

void refuse_type(const YamlNode& node, const std::string& path, const std::string& expected, Diagnostics& diagnostics) {
  diagnostics.add_at(node.source, path, "expected " + expected + ", found " + describe_found(node));
}

bool is_plain_scalar(const YamlNode& node) {
  return node.kind == YamlKind::kScalar && !node.quoted;
}

}  // namespace

ScalarKind scalar_kind(const std::string& text) {
  if (is_any_of(text, {"", "~", "null", "Null", "NULL"})) {
    return ScalarKind::kNull;
  }
  if (is_any_of(text, {"true", "True", "TRUE", "false", "False", "FALSE"})) {
    return ScalarKind::kBoolean;
  }
  if (is_integer(text)) {
    return ScalarKind::kInteger;
  }
  return is_number(text) ? ScalarKind::kNumber : ScalarKind::kString;
}

std::string describe_found(const YamlNode& node) {
  constexpr std::size_t kMaxShown = 80;
  switch (node.kind) {
    case YamlKind::kNull:
      return "null";
    case YamlKind::kList:
      return "a list";
    case YamlKind::kMapping:
      return "a mapping";
    case YamlKind::kScalar:
      break;
  }
  const std::string shown = node.text.size() > kMaxShown ? node.text.substr(0, kMaxShown) + "..." : node.text;
  return node.quoted || scalar_kind(node.text) == ScalarKind::kString ? "\"" + shown + "\"" : shown;
}

std::optional<bool> read_boolean(const YamlNode& node, const std::string& path, Diagnostics& diagnostics) {
  if (is_plain_scalar(node) && scalar_kind(node.text) == ScalarKind::kBoolean) {
    return node.text[0] == 't' || node.text[0] == 'T';
  }
  refuse_type(node, path, "true or false", diagnostics);
  return std::nullopt;
}

std::optional<int64_t> read_integer(const YamlNode& node, const std::string& path, IntegerRange range,
                                    Diagnostics& diagnostics) {
  if (!is_plain_scalar(node) || scalar_kind(node.text) != ScalarKind::kInteger) {
    refuse_type(node, path, "an integer", diagnostics);
    return std::nullopt;
  }
  const std::optional<int64_t> value = parse_integer(node.text);
  if (!value.has_value()) {
    diagnostics.add_at(node.source, path, "does not fit 64 bits, found " + describe_found(node));
    return std::nullopt;
  }
  if (*value < range.low || *value > range.high) {
    const std::string allowed = *value > range.high ? fmt::format("must be at most {}", range.high) : describe(range);
    diagnostics.add_at(node.source, path, allowed + ", found " + describe_found(node));
    return std::nullopt;
  }
  return value;
}

std::optional<double> read_number(const YamlNode& node, const std::string& path, NumberRange range,
                                  Diagnostics& diagnostics) {
  const ScalarKind kind = is_plain_scalar(node) ? scalar_kind(node.text) : ScalarKind::kString;
  if (kind != ScalarKind::kInteger && kind != ScalarKind::kNumber) {
    refuse_type(node, path, "a number", diagnostics);
    return std::nullopt;
  }
  std::string text = node.text;
  const bool is_special = text.find_first_of("nN") != std::string::npos;  // .inf and .nan
  const double value = is_special ? HUGE_VAL : parse_number(text);
  if (!contains(range, value)) {
    diagnostics.add_at(
        node.source, path,
        (std::isfinite(value) ? describe(range) : std::string("must be finite")) + ", found " + describe_found(node));
    return std::nullopt;
  }
  return value;
}

std::optional<std::string> read_text(const YamlNode& node, const std::string& path, Diagnostics& diagnostics) {
  if (node.kind == YamlKind::kScalar &&
      (node.quoted || node.expanded || scalar_kind(node.text) == ScalarKind::kString)) {
    return node.text;
  }
  const bool needs_quotes = node.kind == YamlKind::kScalar;
  refuse_type(node, path, needs_quotes ? "a string (quote it to make it one)" : "a string", diagnostics);
  return std::nullopt;
}

}  // namespace stft::recipe
