#include "tokenizer/written_tokenizer.h"

#include <fmt/format.h>

#include <optional>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "tokenizer/components.h"
#include "tokenizer/config_files.h"
#include "tokenizer/model.h"

namespace stft::tokenizer {

using io::Json;

VocabularyLookup lookup_in(const Json& vocab) {
  VocabularyLookup lookup;
  lookup.size = static_cast<std::int32_t>(vocab.size());
  if (vocab.is_object()) {
    lookup.id_of = [&vocab](const std::string& token) -> std::optional<std::int32_t> {
      const Json& id = member(vocab, token);
      // What is no id is told by the reader of the vocabulary.
      const bool is_id = id.is_number_unsigned() && id.get<std::uint64_t>() <= std::uint64_t{kMaxTokenId};
      return is_id ? std::optional(id.get<std::int32_t>()) : std::nullopt;
    };
    return lookup;
  }
  std::unordered_map<std::string, std::int32_t> ids;
  std::int32_t next = 0;
  for (const Json& entry : vocab) {
    if (entry.is_array() && !entry.empty() && entry[0].is_string()) {
      ids.insert_or_assign(entry[0].get<std::string>(), next);
    }
    ++next;
  }
  lookup.id_of = [ids = std::move(ids)](const std::string& token) -> std::optional<std::int32_t> {
    const auto found = ids.find(token);
    return found == ids.end() ? std::nullopt : std::optional(found->second);
  };
  return lookup;
}

std::vector<AddedToken> written_tokens(const Json& list, const std::string& path) {
  if (!list.is_null() && !list.is_array()) {
    throw UserError(fmt::format("{}: added_tokens: {} instead of a list", path, io::json_type_name(list)));
  }
  std::vector<AddedToken> tokens;
  for (const Json& entry : list) {
    const std::string where = fmt::format("{}: added_tokens[{}]", path, tokens.size());
    AddedToken token = parse_added_token(entry, where);
    const Json& id = member(entry, "id");
    token.id =
        id.is_number_unsigned() && id.get<std::uint64_t>() <= std::uint64_t{kMaxTokenId} ? id.get<std::int32_t>() : 0;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

Json written_charsmap(const Json& normalizer) {
  if (!normalizer.is_object()) {
    return {};
  }
  if (member(normalizer, "type") == "Sequence") {
    for (const Json& item : member(normalizer, "normalizers")) {
      if (item.is_object() && item.contains("precompiled_charsmap")) {
        return item.at("precompiled_charsmap");
      }
    }
    return {};
  }
  return member(normalizer, "precompiled_charsmap");
}

bool is_byte_level(const Json& component) {
  if (!component.is_object()) {
    return false;
  }
  if (member(component, "type") == "ByteLevel") {
    return true;
  }
  for (const char* key : {"pretokenizers", "decoders"}) {
    for (const Json& item : member(component, key)) {
      if (is_byte_level(item)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace stft::tokenizer
