// vocab.txt, and vocab.json with merges.txt: the vocabularies of directories without a tokenizer.json.
#pragma once

#include <string>

#include "io/json.h"

namespace stft::tokenizer {

// One token a line, without the white space behind it; its id is the number of the line, from 0. A token that stands
// there twice, a line over 64 KiB and ill-formed UTF-8 are UserErrors that name "<path>:<line>". Blank lines count but
// are no tokens, except that the last of them holds a place in the vocabulary, as in HF tokenizers 0.23.
io::Json read_vocab_txt(const std::string& path);

// An object of tokens and ids.
io::Json read_vocab_json(const std::string& path);

// Two tokens a line, parted by one blank, the best merge first; lines that begin with "#version" are passed over.
// UserError "<path>:<line>" for any other line, and when a merge names or makes a token that `vocabulary` lacks.
io::Json read_merges_txt(const std::string& path, const io::Json& vocabulary);

}  // namespace stft::tokenizer
