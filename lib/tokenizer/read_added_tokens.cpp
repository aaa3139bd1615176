#include <fmt/format.h>

#include <set>
#include <utility>

#include "base/error.h"
#include "tokenizer/component_json.h"
#include "tokenizer/components.h"

namespace stft::tokenizer {

using io::Json;

AddedToken parse_added_token(const Json& entry, const std::string& origin) {
  AddedToken token;
  token.content = io::get_string(entry, "content", origin);
  token.special = io::get_bool(entry, "special", origin);
  token.single_word = io::get_bool(entry, "single_word", origin);
  token.lstrip = io::get_bool(entry, "lstrip", origin);
  token.rstrip = io::get_bool(entry, "rstrip", origin);
  token.normalized = io::get_bool(entry, "normalized", origin);
  return token;
}

AddedTokenList parse_added_tokens(const Json& json, const Model& model, const std::string& origin) {
  AddedTokenList result;
  if (json.is_null()) {
    return result;
  }
  if (!json.is_array()) {
    throw UserError(fmt::format("{}: added_tokens: {} instead of a list", origin, io::json_type_name(json)));
  }
  std::set<std::string> contents;
  AddedTokenNumbers numbers(static_cast<std::int32_t>(model.token_count()));
  std::size_t index = 0;
  for (const Json& entry : json) {
    const std::string where = fmt::format("{}: added_tokens[{}]", origin, index++);
    AddedToken token = parse_added_token(entry, where);
    token.id = token_id(entry.contains("id") ? entry.at("id") : Json(), where + ": id");
    if (token.content.empty() || token.content.size() > kMaxAddedTokenBytes) {
      throw UserError(fmt::format("{}: content must hold 1 to {} bytes", where, kMaxAddedTokenBytes));
    }
    if (!contents.insert(token.content).second) {
      result.warnings.push_back(fmt::format("{}: '{}' is added twice; the first one counts", where, token.content));
      continue;
    }
    const std::int32_t id = numbers.id_for(model.id_of(token.content));
    if (token.id != id) {
      result.warnings.push_back(fmt::format("{}: '{}' has the id {}, but {} follows from the vocabulary and is used",
                                            where, token.content, token.id, id));
      token.id = id;
    }
    result.tokens.push_back(std::move(token));
  }
  return result;
}

}  // namespace stft::tokenizer
