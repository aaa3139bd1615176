#pragma once

namespace stft::tokenizer {

// An end of a text: where it is cut when it is too long, where it is padded.
enum class Side { kLeft, kRight };

}  // namespace stft::tokenizer
