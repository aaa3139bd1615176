// Components of a tokenizer.json as JSON, for tokenizers that are put together from other files.
#pragma once

#include <string>

#include "io/json.h"

namespace stft::tokenizer {

// `pattern`: {{"String", ...}} or {{"Regex", ...}}.
io::Json replace_json(const io::Json& pattern, const std::string& content);
io::Json split_json(const io::Json& pattern, const std::string& behavior, bool invert);

// With sentencepiece's blank.
io::Json metaspace_json(const std::string& prepend_scheme, bool splits);

// `charsmap`: in base64.
io::Json precompiled_json(const io::Json& charsmap);

// Sequences.
io::Json normalizers_json(io::Json list);
io::Json pre_tokenizers_json(io::Json list);

}  // namespace stft::tokenizer
