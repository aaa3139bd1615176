// What the Oniguruma of HF tokenizers 0.23 (Unicode 16) has in its character properties beyond that of Debian 12
// (Unicode 14); measured, see test/golden/tokenizer/make_unicode_tables.py.
#pragma once

#include <span>

#include "tokenizer/unicode_tables.h"

namespace stft::tokenizer {

struct RegexProperty {
  const char* name;  // as in \p{name}
  std::span<const CodePointRange> added;
};

std::span<const RegexProperty> added_to_properties();
std::span<const CodePointRange> added_to_word();  // \w

}  // namespace stft::tokenizer
