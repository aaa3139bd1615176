// Gives the installed libonig the character properties of the Oniguruma in HF tokenizers 0.23, which knows a newer
// Unicode: without them, letters that were assigned later would not match \p{L}.
#pragma once

#include <string>
#include <string_view>

namespace stft::tokenizer {

// Replaces libonig's properties in this process. To be called once, behind onig_initialize for UTF-8 and before the
// first pattern is compiled. InternalError when libonig refuses.
void define_regex_properties();

// `pattern` with \w, \W, \d, \D, \b, \B and the long names of properties (\p{Letter}) written as the properties that
// define_regex_properties has defined. Left as libonig 6.9.8 knows them, which differs for letters assigned since
// Unicode 14 only: \b and \B inside a look-behind, POSIX brackets ([[:alpha:]]), \h, \X, (?i), scripts but Han.
std::string with_own_properties(std::string_view pattern);

}  // namespace stft::tokenizer
