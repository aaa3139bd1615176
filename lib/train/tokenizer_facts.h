// What a run tells about its tokenizer before it begins.
#pragma once

#include <string>

#include "tokenizer/tokenizer.h"
#include "train/handshake.h"

namespace stft::train {

// The policy and what becomes of a sample text: its first and last ids.
std::string tokenizer_line(const tokenizer::Tokenizer& tokenizer);

// The line as information and the policy's conflicts as warnings. For one rank only.
void tell_about_tokenizer(const tokenizer::Tokenizer& tokenizer);

// The contents of the files that decided, for the ranks to agree on.
Fact tokenizer_fact(const tokenizer::Tokenizer& tokenizer);

}  // namespace stft::train
