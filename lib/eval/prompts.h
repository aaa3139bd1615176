// Which prompt goes before a text that is embedded, as sentence-transformers 6.2 chooses it.
#pragma once

#include <optional>
#include <string>

#include "eval/eval_config.h"
#include "model/model_spec.h"

namespace stft::eval {

// encode: the model's prompt `name`, else that of its default_prompt_name, else none. "query" and "document" are names
// of every model. UserError for another name that the model lacks, listing the model's.
std::string encoding_prompt(const model::ModelSpec& spec, const std::optional<std::string>& name);

// encode_query: the text, or the model's prompt, that `chosen` gives; else its prompt "query", never the default one.
std::string query_prompt(const model::ModelSpec& spec, const PromptConfig& chosen);

// encode_document: the same with "document". (A prompt "passage" or "corpus" is not looked at: every model has a
// "document", if an empty one.)
std::string document_prompt(const model::ModelSpec& spec, const PromptConfig& chosen);

}  // namespace stft::eval
