// Where the files of one tokenizer disagree: warnings that name both files, the keys, and which one counts.
#pragma once

#include <string>
#include <vector>

#include "io/json.h"
#include "tokenizer/config_files.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer_class.h"

namespace stft::tokenizer {

// Stages of tokenizer.json that the class replaces by others. Both are objects with the members of a tokenizer.json.
std::vector<std::string> replaced_stages(const io::Json& written, const io::Json& used, const std::string& path,
                                         const ChosenClass& chosen);

// add_bos_token and add_eos_token against the special tokens that are added. `decided_by`: what adds them.
std::vector<std::string> special_flag_conflicts(const ConfigFiles& files, const NamedTokens& tokens,
                                                const SpecialTokens& added, const std::string& decided_by);

// Named tokens that tokenizer_config.json and special_tokens_map.json give different contents.
std::vector<std::string> named_token_conflicts(const ConfigFiles& files, const NamedTokens& tokens);

// Added tokens whose id follows from the vocabulary and is not the one that a file states.
std::vector<std::string> id_conflicts(const NamedTokens& tokens, const std::string& path);

}  // namespace stft::tokenizer
