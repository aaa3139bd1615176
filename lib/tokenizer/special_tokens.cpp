#include "tokenizer/special_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "base/error.h"
#include "tokenizer/model.h"

namespace stft::tokenizer {
namespace {

using io::Json;

// The order in which transformers adds them.
constexpr const char* kNamedTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};

bool is_standard(const std::string& name) {
  return std::find(std::begin(kNamedTokens), std::end(kNamedTokens), name) != std::end(kNamedTokens);
}

struct Flagged {
  AddedToken token;
  bool has_normalized = false;  // else: normalized when it is not special
  std::string path;             // where its id stands
};

// A token as transformers writes it: a string, or an object with its flags.
Flagged parse_token(const Json& json, const std::string& origin) {
  Flagged result;
  if (json.is_string()) {
    result.token.content = json.get<std::string>();
    result.token.special = true;
    return result;
  }
  result.token.content = io::get_string(json, "content", origin);
  result.token.lstrip = io::optional_bool(json, "lstrip", origin).value_or(false);
  result.token.rstrip = io::optional_bool(json, "rstrip", origin).value_or(false);
  result.token.single_word = io::optional_bool(json, "single_word", origin).value_or(false);
  result.token.special = io::optional_bool(json, "special", origin).value_or(false);
  const auto normalized = io::optional_bool(json, "normalized", origin);
  result.has_normalized = normalized.has_value();
  result.token.normalized = normalized.value_or(false);
  return result;
}

std::int32_t parse_id(const std::string& text, const std::string& origin) {
  std::int32_t id = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size() || id < 0 || id > kMaxTokenId) {
    throw UserError(fmt::format("{}: '{}' is not a token id between 0 and {}", origin, text, kMaxTokenId));
  }
  return id;
}

class Reader {
 public:
  Reader(const ConfigFiles& files, const TokenSources& sources) : files_(files), sources_(sources) {}

  NamedTokens read() {
    for (const NamedDefault& token : sources_.defaults) {
      Flagged flagged;
      flagged.token.content = token.content;
      flagged.token.lstrip = token.lstrip;
      // MPNet's mask is an added token without a flag; Camembert's has one: both end up special.
      flagged.token.special = true;
      named_[token.name] = flagged;
    }
    const std::string config_path = files_.path_of("tokenizer_config.json");
    read_named(files_.tokenizer_config, config_path);
    read_extra(files_.tokenizer_config, config_path);
    if (files_.tokenizer_config.contains("added_tokens_decoder")) {
      read_decoder(files_.tokenizer_config.at("added_tokens_decoder"), config_path + ": added_tokens_decoder");
    } else {
      read_named(files_.special_tokens_map, files_.path_of("special_tokens_map.json"));
      if (member(files_.special_tokens_map, "extra_special_tokens").is_array()) {
        read_extra(files_.special_tokens_map, files_.path_of("special_tokens_map.json"));
      }
      read_added_tokens();
      for (const AddedToken& token : sources_.of_tokenizer_json) {
        decoder_[token.id] = {token, true, files_.path_of("tokenizer.json")};
      }
    }
    return collect();
  }

 private:
  void read_named(const Json& json, const std::string& path) {
    for (const auto& [key, value] : json.items()) {
      const bool is_token =
          is_standard(key) || (key.ends_with("_token") && (value.is_string() || is_token_object(value)));
      if (!is_token || value.is_boolean()) {
        continue;
      }
      if (value.is_null()) {
        named_.erase(key);
        continue;
      }
      if (!value.is_string() && !value.is_object()) {
        throw UserError(fmt::format("{}: '{}': {} instead of a token", path, key, io::json_type_name(value)));
      }
      named_[key] = parse_token(value, fmt::format("{}: '{}'", path, key));
      named_[key].token.special = true;
    }
    const Json& extra = member(json, "extra_special_tokens");
    if (extra.is_object()) {
      for (const auto& [key, value] : extra.items()) {
        named_[key] = parse_token(value, fmt::format("{}: extra_special_tokens '{}'", path, key));
      }
    }
  }

  static bool is_token_object(const Json& value) { return value.is_object() && value.contains("content"); }

  void read_extra(const Json& json, const std::string& path) {
    for (const char* key : {"extra_special_tokens", "additional_special_tokens"}) {
      const Json& list = member(json, key);
      if (list.is_null() || list.is_object() || list.empty()) {
        continue;
      }
      if (!list.is_array()) {
        throw UserError(fmt::format("{}: '{}': {} instead of a list", path, key, io::json_type_name(list)));
      }
      for (const Json& token : list) {
        extra_.push_back(parse_token(token, fmt::format("{}: '{}'", path, key)));
      }
      return;
    }
  }

  void read_decoder(const Json& json, const std::string& origin) {
    if (!json.is_object()) {
      throw UserError(fmt::format("{}: {} instead of an object", origin, io::json_type_name(json)));
    }
    for (const auto& [key, value] : json.items()) {
      const std::int32_t id = parse_id(key, origin);
      decoder_[id] = parse_token(value, fmt::format("{} '{}'", origin, key));
      decoder_[id].path = files_.path_of("tokenizer_config.json");
    }
  }

  void read_added_tokens() {
    const std::string path = files_.path_of("added_tokens.json");
    std::set<std::string> special;
    for (const auto& [name, flagged] : named_) {
      special.insert(flagged.token.content);
    }
    for (const Flagged& flagged : extra_) {
      special.insert(flagged.token.content);
    }
    for (const auto& [content, value] : files_.added_tokens.items()) {
      if (!value.is_number_integer()) {
        throw UserError(fmt::format("{}: '{}': {} instead of a token id", path, content, io::json_type_name(value)));
      }
      const std::int32_t id = parse_id(value.dump(), fmt::format("{}: '{}'", path, content));
      AddedToken token;
      token.content = content;
      token.id = id;
      token.special = special.contains(content);
      token.normalized = !token.special;
      decoder_[id] = {std::move(token), true, path};
    }
  }

  NamedTokens collect() {
    NamedTokens result;
    if (sources_.extends_tokenizer_json) {
      for (const AddedToken& token : sources_.of_tokenizer_json) {
        append(result, {token, true, {}});
      }
    }
    for (const auto& [id, flagged] : decoder_) {
      result.stated_ids[flagged.token.content] = {id, flagged.path};
    }
    std::set<std::string> named_contents;
    for (const auto& [name, flagged] : named_) {
      result.named[name] = flagged.token.content;
      named_contents.insert(flagged.token.content);
    }
    for (const auto& [id, flagged] : decoder_) {
      Flagged token = flagged;
      token.token.special = token.token.special || named_contents.contains(token.token.content);
      append(result, token);
    }
    for (const char* name : kNamedTokens) {
      if (const auto found = named_.find(name); found != named_.end()) {
        append(result, found->second);
      }
    }
    for (const auto& [name, flagged] : named_) {
      append(result, flagged);
    }
    for (const Flagged& flagged : extra_) {
      append(result, flagged);
    }
    if (extra_.empty()) {
      for (const AddedToken& token : sources_.extra) {
        append(result, {token, true, {}});
      }
    }
    return result;
  }

  void append(NamedTokens& result, Flagged flagged) {
    if (flagged.token.content.empty() || !seen_.insert(flagged.token.content).second) {
      return;
    }
    if (!flagged.has_normalized) {
      flagged.token.normalized = !flagged.token.special;
    }
    result.added.push_back(std::move(flagged.token));
  }

  const ConfigFiles& files_;
  const TokenSources& sources_;
  std::map<std::string, Flagged> named_;
  std::vector<Flagged> extra_;
  std::map<std::int32_t, Flagged> decoder_;
  std::set<std::string> seen_;
};

}  // namespace

std::optional<std::string> NamedTokens::find(const std::string& name) const {
  const auto found = named.find(name);
  return found == named.end() ? std::nullopt : std::optional(found->second);
}

bool NamedTokens::is_named_in(const std::vector<SpecialToken>& tokens, std::initializer_list<const char*> names) const {
  return std::any_of(tokens.begin(), tokens.end(), [&](const SpecialToken& token) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return find(name) == token.token; });
  });
}

NamedTokens read_special_tokens(const ConfigFiles& files, const TokenSources& sources) {
  return Reader(files, sources).read();
}

void assign_ids(std::vector<AddedToken>& tokens, const VocabularyLookup& vocabulary) {
  AddedTokenNumbers numbers(vocabulary.size);
  for (AddedToken& token : tokens) {
    token.id = numbers.id_for(vocabulary.id_of(token.content));
  }
}

}  // namespace stft::tokenizer
