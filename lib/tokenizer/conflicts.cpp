#include "tokenizer/conflicts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "tokenizer/components.h"

namespace stft::tokenizer {
namespace {

using io::Json;

// A component with the values that its keys have when they are left out, and without those that do not matter to ids.
Json canonical(const Json& component) {
  if (!component.is_object()) {
    return component;
  }
  Json result = component;
  for (auto& [key, value] : result.items()) {
    if (value.is_array()) {
      for (Json& item : value) {
        item = canonical(item);
      }
    }
  }
  const std::string type = member(result, "type").is_string() ? result.at("type").get<std::string>() : "";
  const auto fill = [&](const char* key, const Json& value) {
    if (!result.contains(key)) {
      result[key] = value;
    }
  };
  if (type == "BertNormalizer") {
    fill("lowercase", true);
    if (member(result, "strip_accents").is_null()) {
      result["strip_accents"] = result.at("lowercase");
    }
  } else if (type == "ByteLevel") {
    fill("use_regex", true);
    fill("add_prefix_space", true);
    result.erase("trim_offsets");
  } else if (type == "Metaspace") {
    const Json& prefixes = member(result, "add_prefix_space");
    fill("prepend_scheme", prefixes.is_boolean() && !prefixes.get<bool>() ? "never" : "always");
    fill("split", true);
    result.erase("add_prefix_space");
    result.erase("str_rep");
  } else if (type == "Sequence") {
    for (const char* key : {"normalizers", "pretokenizers"}) {
      const Json& list = member(result, key);
      if (list.is_array() && list.size() == 1) {
        return Json(list.front());
      }
    }
  }
  return result;
}

using Tokens = std::vector<SpecialToken>;

bool equal(const Tokens& a, const Tokens& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const SpecialToken& x, const SpecialToken& y) { return x.id == y.id; });
}

std::string described(const SpecialTokens& added) {
  return fmt::format("{} before and {} behind a text", listed(added.prefix), listed(added.suffix));
}

std::string content_of(const Json& token) {
  const Json& content = token.is_object() ? member(token, "content") : token;
  return content.is_string() ? content.get<std::string>() : std::string();
}

// The options of a model that are written and not what is used, in a row. Null, "" and absent are the same.
std::string changed_options(const Json& written, const Json& used) {
  if (!written.is_object()) {
    return "";
  }
  std::string names;
  for (const auto& [key, value] : written.items()) {
    const bool is_unset = value.is_null() || value == "" || key == "dropout" || key == "type";
    if (is_unset || key == "vocab" || key == "merges" || member(used, key) == value) {
      continue;
    }
    names += fmt::format("{}{} {}", names.empty() ? "" : ", ", key, value.is_structured() ? "..." : value.dump());
  }
  return names;
}

// What a post-processor that is not used puts around a text: nothing when it cannot be read.
SpecialTokens special_tokens_of(const Json& post_processor, const std::string& path) {
  try {
    return parse_post_processor(post_processor, path).special_tokens();
  } catch (const UserError&) {
    return {};
  }
}

}  // namespace

std::vector<std::string> replaced_stages(const Json& written, const Json& used, const std::string& path,
                                         const ChosenClass& chosen) {
  std::vector<std::string> warnings;
  std::string stages;
  for (const char* stage : {"normalizer", "pre_tokenizer"}) {
    if (canonical(member(written, stage)) != canonical(member(used, stage))) {
      stages += (stages.empty() ? "" : " and ") + std::string(stage);
    }
  }
  if (!stages.empty()) {
    warnings.push_back(
        fmt::format("{}: {}: not what {} ({}) makes of tokenizer_config.json; the class counts, as in "
                    "transformers 5",
                    path, stages, chosen.name, chosen.stated_by));
  }
  const std::string options = changed_options(member(written, "model"), member(used, "model"));
  if (!options.empty()) {
    warnings.push_back(fmt::format("{}: model: {}: not what {} ({}) sets; the class counts, as in transformers 5", path,
                                   options, chosen.name, chosen.stated_by));
  }
  const SpecialTokens before = special_tokens_of(member(written, "post_processor"), path);
  const SpecialTokens after = parse_post_processor(member(used, "post_processor"), path).special_tokens();
  if (!equal(before.prefix, after.prefix) || !equal(before.suffix, after.suffix)) {
    warnings.push_back(
        fmt::format("{}: post_processor puts {}, but {} ({}) puts {}; the class counts, as in "
                    "transformers 5",
                    path, described(before), chosen.name, chosen.stated_by, described(after)));
  }
  return warnings;
}

std::vector<std::string> special_flag_conflicts(const ConfigFiles& files, const NamedTokens& tokens,
                                                const SpecialTokens& added, const std::string& decided_by) {
  std::vector<std::string> warnings;
  const auto check = [&](const char* key, bool adds) {
    const std::optional<bool> wanted = config_flag(files, key);
    if (wanted && *wanted != adds) {
      warnings.push_back(fmt::format("{}: {} is {}, but {} puts {}; the latter counts, as in transformers 5",
                                     files.path_of("tokenizer_config.json"), key, *wanted, decided_by,
                                     described(added)));
    }
  };
  check("add_bos_token", tokens.is_named_in(added.prefix, {"bos_token", "cls_token"}));
  check("add_eos_token", tokens.is_named_in(added.suffix, {"eos_token", "sep_token"}));
  return warnings;
}

std::vector<std::string> named_token_conflicts(const ConfigFiles& files, const NamedTokens& tokens) {
  std::vector<std::string> warnings;
  for (const auto& [key, value] : files.special_tokens_map.items()) {
    const std::string here = content_of(value);
    const std::string there = content_of(member(files.tokenizer_config, key));
    if (!here.empty() && !there.empty() && here != there) {
      warnings.push_back(fmt::format("{}: {} is '{}', but {}: '{}'; '{}' counts",
                                     files.path_of("tokenizer_config.json"), key, there,
                                     files.path_of("special_tokens_map.json"), here, tokens.find(key).value_or(there)));
    }
  }
  return warnings;
}

std::vector<std::string> id_conflicts(const NamedTokens& tokens, const std::string& path) {
  std::vector<std::string> warnings;
  for (const AddedToken& token : tokens.added) {
    const auto stated = tokens.stated_ids.find(token.content);
    if (stated != tokens.stated_ids.end() && stated->second.id != token.id) {
      warnings.push_back(
          fmt::format("{}: the added token '{}' has the id {}, but {} follows from {}; the latter "
                      "counts, as in transformers 5",
                      stated->second.path, token.content, stated->second.id, token.id, path));
    }
  }
  return warnings;
}

}  // namespace stft::tokenizer
