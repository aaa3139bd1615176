// Extended grapheme clusters (Unicode Standard Annex 29) as HF tokenizers 0.23 sees them.
#pragma once

#include <cstddef>
#include <string_view>

namespace stft::tokenizer {

// Where the cluster that begins at `start` < text.size() ends (bytes). `text` is well-formed UTF-8, `start` is 0 or the
// end of a cluster. Linear in the length of the cluster. A pair of regional indicators counts as two clusters: both
// are over 5 bytes with what joins them, which is all that the Precompiled normalizer asks.
std::size_t grapheme_end(std::string_view text, std::size_t start);

}  // namespace stft::tokenizer
