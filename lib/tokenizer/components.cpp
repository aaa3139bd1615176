#include "tokenizer/components.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "tokenizer/wordpiece.h"

namespace stft::tokenizer {
namespace {

using io::Json;

constexpr int kMaxSequenceDepth = 8;
constexpr std::size_t kMaxReplaceChars = 1024;

[[noreturn]] void refuse(const std::string& origin, const std::string& stage, const std::string& type) {
  throw UserError(fmt::format("{}: {} type '{}' is not available yet", origin, stage, type));
}

// The list under `key` of a component; UserError when it is missing or no list.
const Json& list_at(const Json& json, const std::string& key, const std::string& origin) {
  if (!json.is_object() || !json.contains(key) || !json.at(key).is_array()) {
    throw UserError(fmt::format("{}: '{}' must be a list", origin, key));
  }
  return json.at(key);
}

const Json& object_at(const Json& json, const std::string& key, const std::string& origin) {
  if (!json.is_object() || !json.contains(key) || !json.at(key).is_object()) {
    throw UserError(fmt::format("{}: '{}' must be an object", origin, key));
  }
  return json.at(key);
}

std::string string_of(const Json& value, const std::string& origin) {
  if (!value.is_string()) {
    throw UserError(fmt::format("{}: {} instead of a string", origin, io::json_type_name(value)));
  }
  return value.get<std::string>();
}

std::int32_t token_id(const Json& value, const std::string& origin) {
  if (!value.is_number_integer()) {
    throw UserError(fmt::format("{}: {} instead of a token id", origin, io::json_type_name(value)));
  }
  const bool too_large = value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{kMaxTokenId};
  if (too_large || value.get<std::int64_t>() < 0) {
    throw UserError(fmt::format("{}: the token id {} is not between 0 and {}", origin, value.dump(), kMaxTokenId));
  }
  return value.get<std::int32_t>();
}

std::u32string code_points(const std::string& utf8) {
  std::u32string text;
  for (std::size_t position = 0; position < utf8.size();) {
    const DecodedChar c = decode_char(utf8, position);
    text.push_back(c.value);
    position += c.length;
  }
  return text;
}

BertNormalizer bert_normalizer(const Json& json, const std::string& origin) {
  BertNormalizer step;
  step.clean_text = io::optional_bool(json, "clean_text", origin).value_or(true);
  step.handle_chinese_chars = io::optional_bool(json, "handle_chinese_chars", origin).value_or(true);
  step.lowercase = io::optional_bool(json, "lowercase", origin).value_or(true);
  step.strip_accents = io::optional_bool(json, "strip_accents", origin).value_or(step.lowercase);
  return step;
}

ReplaceNormalizer replace_normalizer(const Json& json, const std::string& origin) {
  const Json& pattern = object_at(json, "pattern", origin);
  if (!pattern.contains("String")) {
    throw UserError(fmt::format("{}: only a pattern of kind 'String' is available yet", origin));
  }
  ReplaceNormalizer step{code_points(io::get_string(pattern, "String", origin + " pattern")),
                         code_points(io::get_string(json, "content", origin))};
  if (step.pattern.empty() || step.pattern.size() > kMaxReplaceChars || step.content.size() > kMaxReplaceChars) {
    throw UserError(fmt::format("{}: the pattern must hold 1 to {} characters and the content no more than that",
                                origin, kMaxReplaceChars));
  }
  return step;
}

class NormalizerReader {
 public:
  explicit NormalizerReader(std::string origin) : origin_(std::move(origin)) {}

  void read(const Json& json, int depth) {
    const std::string type = io::get_string(json, "type", origin_ + ": normalizer");
    const std::string where = origin_ + ": normalizer " + type;
    if (type == "Sequence") {
      if (depth == kMaxSequenceDepth) {
        throw UserError(where + ": nested too deeply");
      }
      for (const Json& member : list_at(json, "normalizers", where)) {
        read(member, depth + 1);
      }
    } else if (type == "BertNormalizer") {
      steps_.push_back(bert_normalizer(json, where));
    } else if (type == "Replace") {
      steps_.push_back(replace_normalizer(json, where));
    } else if (type == "Strip") {
      steps_.push_back(
          StripNormalizer{io::get_bool(json, "strip_left", where), io::get_bool(json, "strip_right", where)});
    } else {
      steps_.push_back(plain_step(type));
    }
  }

  std::vector<NormalizerStep> take() { return std::move(steps_); }

 private:
  NormalizerStep plain_step(const std::string& type) const {
    const std::map<std::string, NormalizerStep> known = {
        {"NFD", UnicodeNormalizer{Decomposition::kCanonical, false}},
        {"NFC", UnicodeNormalizer{Decomposition::kCanonical, true}},
        {"NFKD", UnicodeNormalizer{Decomposition::kCompatible, false}},
        {"NFKC", UnicodeNormalizer{Decomposition::kCompatible, true}},
        {"Lowercase", LowercaseNormalizer{}},
        {"StripAccents", StripAccentsNormalizer{}},
    };
    const auto found = known.find(type);
    if (found == known.end()) {
      refuse(origin_, "normalizer", type);
    }
    return found->second;
  }

  std::string origin_;
  std::vector<NormalizerStep> steps_;
};

SplitBehavior split_behavior(const std::string& name, const std::string& origin) {
  const std::map<std::string, SplitBehavior> known = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  };
  const auto found = known.find(name);
  if (found == known.end()) {
    throw UserError(
        fmt::format("{}: behavior '{}' is not one of Removed, Isolated, MergedWithPrevious, "
                    "MergedWithNext, Contiguous",
                    origin, name));
  }
  return found->second;
}

class PreTokenizerReader {
 public:
  explicit PreTokenizerReader(std::string origin) : origin_(std::move(origin)) {}

  void read(const Json& json, int depth) {
    const std::string type = io::get_string(json, "type", origin_ + ": pre_tokenizer");
    const std::string where = origin_ + ": pre_tokenizer " + type;
    if (type == "Sequence") {
      if (depth == kMaxSequenceDepth) {
        throw UserError(where + ": nested too deeply");
      }
      for (const Json& member : list_at(json, "pretokenizers", where)) {
        read(member, depth + 1);
      }
    } else if (type == "BertPreTokenizer") {
      steps_.push_back(BertPreTokenizer{});
    } else if (type == "Whitespace") {
      steps_.push_back(WhitespacePreTokenizer{});
    } else if (type == "WhitespaceSplit") {
      steps_.push_back(WhitespaceSplitPreTokenizer{});
    } else if (type == "Punctuation") {
      const std::string behavior = io::optional_string(json, "behavior", where).value_or("Isolated");
      steps_.push_back(PunctuationPreTokenizer{split_behavior(behavior, where)});
    } else {
      refuse(origin_, "pre_tokenizer", type);
    }
  }

  std::vector<PreTokenizerStep> take() { return std::move(steps_); }

 private:
  std::string origin_;
  std::vector<PreTokenizerStep> steps_;
};

Vocabulary parse_vocabulary(const Json& json, const std::string& origin) {
  Vocabulary vocabulary;
  vocabulary.reserve(json.size());
  std::unordered_map<std::int32_t, std::string> token_of;
  token_of.reserve(json.size());
  for (const auto& [token, value] : json.items()) {
    const std::int32_t id = token_id(value, fmt::format("{}: vocab '{}'", origin, token));
    const auto [other, is_new] = token_of.emplace(id, token);
    if (!is_new) {
      throw UserError(fmt::format("{}: vocab gives the id {} to both '{}' and '{}'", origin, id, other->second, token));
    }
    vocabulary.emplace(token, id);
  }
  return vocabulary;
}

// Files of old versions have no "type": the keys tell.
std::string model_type(const Json& json, const std::string& origin) {
  if (json.is_object() && !json.contains("type")) {
    return json.contains("merges") ? "BPE" : json.contains("max_input_chars_per_word") ? "WordPiece" : "without a name";
  }
  return io::get_string(json, "type", origin + ": model");
}

SpecialToken special_pair(const Json& json, const std::string& key, const std::string& origin) {
  const Json& pair = list_at(json, key, origin);
  if (pair.size() != 2) {
    throw UserError(fmt::format("{}: '{}' must be a token and its id", origin, key));
  }
  const std::string where = fmt::format("{}: '{}'", origin, key);
  return {token_id(pair[1], where), string_of(pair[0], where)};
}

std::vector<SpecialToken> template_specials(const Json& specials, const std::string& name, const std::string& origin) {
  const std::string where = fmt::format("{}: special_tokens '{}'", origin, name);
  if (!specials.contains(name)) {
    throw UserError(where + " is missing");
  }
  const Json& ids = list_at(specials.at(name), "ids", where);
  const Json& tokens = list_at(specials.at(name), "tokens", where);
  if (ids.size() != tokens.size()) {
    throw UserError(fmt::format("{}: {} ids but {} tokens", where, ids.size(), tokens.size()));
  }
  std::vector<SpecialToken> result;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    result.push_back({token_id(ids[i], where), string_of(tokens[i], where)});
  }
  return result;
}

PostProcessor template_processor(const Json& json, const std::string& origin) {
  PostProcessor result;
  const Json& specials = object_at(json, "special_tokens", origin);
  bool text_seen = false;
  for (const Json& piece : list_at(json, "single", origin)) {
    const std::string where = origin + ": single";
    if (piece.is_object() && piece.contains("Sequence")) {
      const std::string sequence = io::get_string(piece.at("Sequence"), "id", where);
      if (sequence != "A" || text_seen) {
        throw UserError(where + ": only the sequence A, once, is available");
      }
      text_seen = true;
      continue;
    }
    const std::string name = io::get_string(object_at(piece, "SpecialToken", where), "id", where);
    auto& side = text_seen ? result.suffix : result.prefix;
    for (SpecialToken& special : template_specials(specials, name, origin)) {
      side.push_back(std::move(special));
    }
  }
  if (!text_seen) {
    throw UserError(origin + ": single lacks the sequence A");
  }
  return result;
}

}  // namespace

std::vector<NormalizerStep> parse_normalizer(const Json& json, const std::string& origin) {
  NormalizerReader reader(origin);
  if (!json.is_null()) {
    reader.read(json, 0);
  }
  return reader.take();
}

std::vector<PreTokenizerStep> parse_pre_tokenizer(const Json& json, const std::string& origin) {
  PreTokenizerReader reader(origin);
  if (!json.is_null()) {
    reader.read(json, 0);
  }
  return reader.take();
}

std::unique_ptr<const Model> parse_model(const Json& json, const std::string& origin) {
  const std::string type = model_type(json, origin);
  if (type != "WordPiece") {
    refuse(origin, "model", type);
  }
  const std::string where = origin + ": model WordPiece";
  WordPieceOptions options;
  options.unknown_token = io::get_string(json, "unk_token", where);
  options.continuing_prefix = io::optional_string(json, "continuing_subword_prefix", where).value_or("##");
  const std::int64_t longest = io::optional_int(json, "max_input_chars_per_word", where).value_or(100);
  if (longest < 0) {
    throw UserError(fmt::format("{}: max_input_chars_per_word is {}, below 0", where, longest));
  }
  options.max_input_chars_per_word = static_cast<std::size_t>(longest);
  try {
    return std::make_unique<WordPiece>(parse_vocabulary(object_at(json, "vocab", where), where), std::move(options));
  } catch (const UserError& error) {
    const std::string message = error.what();
    throw UserError(message.starts_with(origin) ? message : where + ": " + message);
  }
}

std::vector<AddedToken> parse_added_tokens(const Json& json, const Model& model, const std::string& origin) {
  std::vector<AddedToken> tokens;
  if (json.is_null()) {
    return tokens;
  }
  if (!json.is_array()) {
    throw UserError(fmt::format("{}: added_tokens: {} instead of a list", origin, io::json_type_name(json)));
  }
  std::set<std::string> contents;
  std::int32_t next_id = static_cast<std::int32_t>(model.token_count());
  for (const Json& entry : json) {
    const std::string where = fmt::format("{}: added_tokens[{}]", origin, tokens.size());
    AddedToken token;
    token.content = io::get_string(entry, "content", where);
    token.special = io::get_bool(entry, "special", where);
    token.single_word = io::get_bool(entry, "single_word", where);
    token.lstrip = io::get_bool(entry, "lstrip", where);
    token.rstrip = io::get_bool(entry, "rstrip", where);
    token.normalized = io::get_bool(entry, "normalized", where);
    token.id = token_id(entry.contains("id") ? entry.at("id") : Json(), where + ": id");
    if (token.content.empty() || token.content.size() > kMaxAddedTokenBytes) {
      throw UserError(fmt::format("{}: content must hold 1 to {} bytes", where, kMaxAddedTokenBytes));
    }
    if (!contents.insert(token.content).second) {
      throw UserError(fmt::format("{}: '{}' is added twice", where, token.content));
    }
    const std::int32_t expected = model.id_of(token.content).value_or(next_id);
    if (token.id != expected) {
      throw UserError(fmt::format("{}: '{}' has the id {}, but {} follows from the vocabulary", where, token.content,
                                  token.id, expected));
    }
    next_id = std::max(next_id, token.id + 1);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

PostProcessor parse_post_processor(const Json& json, const std::string& origin) {
  if (json.is_null()) {
    return {};
  }
  const std::string type = io::get_string(json, "type", origin + ": post_processor");
  const std::string where = origin + ": post_processor " + type;
  if (type == "TemplateProcessing") {
    return template_processor(json, where);
  }
  if (type != "BertProcessing" && type != "RobertaProcessing") {
    refuse(origin, "post_processor", type);
  }
  PostProcessor result;
  result.prefix = {special_pair(json, "cls", where)};
  result.suffix = {special_pair(json, "sep", where)};
  if (type == "RobertaProcessing" && io::optional_bool(json, "trim_offsets", where).value_or(true)) {
    result.trimming = OffsetTrimming{io::optional_bool(json, "add_prefix_space", where).value_or(true)};
  }
  return result;
}

}  // namespace stft::tokenizer
