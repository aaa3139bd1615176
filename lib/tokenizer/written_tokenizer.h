// What stands in a tokenizer.json, as far as another class's stages need it. Nothing here refuses what components.h
// does.
#pragma once

#include <string>
#include <vector>

#include "io/json.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/special_tokens.h"

namespace stft::tokenizer {

// Looks tokens up in the vocabulary of a model: an object of ids, or a list of pieces with scores. Borrows `vocab`.
VocabularyLookup lookup_in(const io::Json& vocab);

// The value of "added_tokens". UserError naming `path`, the index and the key when one is malformed; ids that cannot be
// are read as 0.
std::vector<AddedToken> written_tokens(const io::Json& list, const std::string& path);

// The charsmap of the first Precompiled of a normalizer, or null.
io::Json written_charsmap(const io::Json& normalizer);

// Whether a pre-tokenizer or decoder is ByteLevel or holds one.
bool is_byte_level(const io::Json& component);

}  // namespace stft::tokenizer
