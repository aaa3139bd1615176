// Validation of UTF-8 text.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace stft::io {

// Byte offset of the first sequence that is not well-formed UTF-8 (overlong forms, surrogates and code points above
// U+10FFFF are not); nothing when the whole text is well formed.
std::optional<std::size_t> first_invalid_utf8(std::string_view text);

}  // namespace stft::io
