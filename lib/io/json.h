// JSON as the user's files hold it: strict, with positions in the messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace stft::io {

using Json = nlohmann::json;

// Arrays and objects may be nested this deep.
inline constexpr int kMaxJsonDepth = 200;

// Why a text is not JSON, and at which byte.
struct JsonFailure {
  std::size_t offset = 0;
  std::string reason;
};

struct JsonResult {
  Json value;  // null when there is a failure
  std::optional<JsonFailure> failure;
};

// How a number with a fraction or an exponent becomes a double.
enum class FloatReading {
  kNearest,  // the double next to it
  kSerde,    // as the Rust crate serde_json does by default, which may be off by a few units in the last place
};

// Parses one JSON value and nothing else. Besides malformed text these are failures: an object that gives a key twice,
// nesting over kMaxJsonDepth, text that is not UTF-8, NaN and Infinity.
JsonResult try_parse_json(std::string_view text, FloatReading reading = FloatReading::kNearest);

// As try_parse_json; a failure is a UserError "<origin>:<line>:<column>: not valid JSON: <reason>". The column counts
// bytes from 1. `origin`: the path, for messages.
Json parse_json(std::string_view text, const std::string& origin, FloatReading reading = FloatReading::kNearest);

// parse_json of a file's content; errors of read_text_file besides.
Json read_json_file(const std::string& path, FloatReading reading = FloatReading::kNearest);

// What a value is, for messages: "null", "a string", "an integer", "a number", "true or false", "a list", "an object".
std::string json_type_name(const Json& value);

// The value of a key of an object. UserError, naming `origin`, the key and the type found, when `json` is not an
// object, the key is missing or the value has another type. get_int takes whole numbers that fit int64_t and were
// written without fraction or exponent; get_double takes any number.
std::string get_string(const Json& json, const std::string& key, const std::string& origin);
std::int64_t get_int(const Json& json, const std::string& key, const std::string& origin);
double get_double(const Json& json, const std::string& key, const std::string& origin);
bool get_bool(const Json& json, const std::string& key, const std::string& origin);

// The same, but nothing when the key is missing or its value is null.
std::optional<std::string> optional_string(const Json& json, const std::string& key, const std::string& origin);
std::optional<std::int64_t> optional_int(const Json& json, const std::string& key, const std::string& origin);
std::optional<double> optional_double(const Json& json, const std::string& key, const std::string& origin);
std::optional<bool> optional_bool(const Json& json, const std::string& key, const std::string& origin);

}  // namespace stft::io
