// What the readers of tokenizer.json's components share. `origin`: where a value stands, for messages.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "io/json.h"
#include "tokenizer/regex.h"

namespace stft::tokenizer {

// Components may be nested this deep in sequences.
inline constexpr int kMaxSequenceDepth = 8;

// Sequences may come to this many steps.
inline constexpr std::size_t kMaxSteps = 256;

// A component that exists in tokenizer.json but not here.
[[noreturn]] void refuse_component(const std::string& origin, const std::string& stage, const std::string& type);

// The value of a key; UserError when it is missing or has another type.
const io::Json& list_at(const io::Json& json, const std::string& key, const std::string& origin);
const io::Json& object_at(const io::Json& json, const std::string& key, const std::string& origin);

// The value itself; UserError when it has another type.
std::string string_of(const io::Json& value, const std::string& origin);
std::int32_t token_id(const io::Json& value, const std::string& origin);

std::u32string code_points(const std::string& utf8);

// A "pattern" of tokenizer.json: {"String": ...} or {"Regex": ...}; the string has 1 to 1024 code points.
std::variant<std::u32string, Regex> text_pattern(const io::Json& json, const std::string& origin);

}  // namespace stft::tokenizer
