#include "tokenizer/component_json.h"

#include <fmt/format.h>

#include "base/error.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocabulary.h"

namespace stft::tokenizer {

using io::Json;

void refuse_component(const std::string& origin, const std::string& stage, const std::string& type) {
  throw UserError(fmt::format("{}: {} type '{}' is not available", origin, stage, type));
}

const Json& list_at(const Json& json, const std::string& key, const std::string& origin) {
  if (!json.is_object() || !json.contains(key) || !json.at(key).is_array()) {
    throw UserError(fmt::format("{}: '{}' must be a list", origin, key));
  }
  return json.at(key);
}

const Json& object_at(const Json& json, const std::string& key, const std::string& origin) {
  if (!json.is_object() || !json.contains(key) || !json.at(key).is_object()) {
    throw UserError(fmt::format("{}: '{}' must be an object", origin, key));
  }
  return json.at(key);
}

std::string string_of(const Json& value, const std::string& origin) {
  if (!value.is_string()) {
    throw UserError(fmt::format("{}: {} instead of a string", origin, io::json_type_name(value)));
  }
  return value.get<std::string>();
}

std::int32_t token_id(const Json& value, const std::string& origin) {
  if (!value.is_number_integer()) {
    throw UserError(fmt::format("{}: {} instead of a token id", origin, io::json_type_name(value)));
  }
  const bool too_large = value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{kMaxTokenId};
  if (too_large || value.get<std::int64_t>() < 0) {
    throw UserError(fmt::format("{}: the token id {} is not between 0 and {}", origin, value.dump(), kMaxTokenId));
  }
  return value.get<std::int32_t>();
}

std::u32string code_points(const std::string& utf8) {
  std::u32string text;
  for (std::size_t position = 0; position < utf8.size();) {
    const DecodedChar c = decode_char(utf8, position);
    text.push_back(c.value);
    position += c.length;
  }
  return text;
}

std::variant<std::u32string, Regex> text_pattern(const Json& json, const std::string& origin) {
  constexpr std::size_t kMaxChars = 1024;
  if (json.contains("Regex")) {
    try {
      return Regex(io::get_string(json, "Regex", origin));
    } catch (const UserError& error) {
      const std::string message = error.what();
      throw UserError(message.starts_with(origin) ? message : origin + ": " + message);
    }
  }
  if (!json.contains("String")) {
    throw UserError(origin + ": neither 'String' nor 'Regex'");
  }
  std::u32string text = code_points(io::get_string(json, "String", origin));
  if (text.empty() || text.size() > kMaxChars) {
    throw UserError(fmt::format("{}: the string must hold 1 to {} characters", origin, kMaxChars));
  }
  return text;
}

}  // namespace stft::tokenizer
