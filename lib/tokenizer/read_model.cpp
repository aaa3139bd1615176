#include <fmt/format.h>

#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/component_json.h"
#include "tokenizer/components.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unigram.h"
#include "tokenizer/word_level.h"
#include "tokenizer/wordpiece.h"

namespace stft::tokenizer {
namespace {

using io::Json;

void check_token(const std::string& token, const std::string& origin) {
  if (token.size() > kMaxTokenBytes) {
    throw UserError(fmt::format("{}: vocab holds a token of {} bytes; {} are allowed: '{}'", origin, token.size(),
                                kMaxTokenBytes, shortened(token)));
  }
}

Vocabulary read_vocabulary(const Json& json, const std::string& origin) {
  std::vector<VocabularyEntry> entries;
  entries.reserve(json.size());
  std::unordered_map<std::int32_t, std::size_t> entry_of;
  entry_of.reserve(json.size());
  for (const auto& [token, value] : json.items()) {
    check_token(token, origin);
    const bool is_id = value.is_number_unsigned() && value.get<std::uint64_t>() <= std::uint64_t{kMaxTokenId};
    // The message costs as much as the rest of the loop.
    const std::int32_t id =
        is_id ? value.get<std::int32_t>() : token_id(value, fmt::format("{}: vocab '{}'", origin, token));
    const auto [other, is_new] = entry_of.emplace(id, entries.size());
    if (!is_new) {
      throw UserError(fmt::format("{}: vocab gives the id {} to both '{}' and '{}'", origin, id,
                                  entries[other->second].token, token));
    }
    entries.push_back({token, id});
  }
  return Vocabulary(std::move(entries));
}

BpeMerge read_merge(const Json& json, std::size_t rank, const std::string& origin) {
  const auto bad = [&](const std::string& why) {
    return UserError(fmt::format("{}: merges[{}]: {}", origin, rank, why));
  };
  if (json.is_string()) {
    const auto& text = json.get_ref<const std::string&>();
    const std::size_t blank = text.find(' ');
    if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos) {
      throw bad(fmt::format("'{}' is not two tokens with one blank between them", shortened(text)));
    }
    return {text.substr(0, blank), text.substr(blank + 1)};
  }
  if (!json.is_array() || json.size() != 2 || !json[0].is_string() || !json[1].is_string()) {
    throw bad("neither a string nor a list of two strings");
  }
  return {json[0].get<std::string>(), json[1].get<std::string>()};
}

std::unique_ptr<const Model> read_bpe(const Json& json, const std::string& origin) {
  BpeOptions options;
  options.unknown_token = io::optional_string(json, "unk_token", origin);
  options.continuing_prefix = io::optional_string(json, "continuing_subword_prefix", origin).value_or("");
  options.end_of_word_suffix = io::optional_string(json, "end_of_word_suffix", origin).value_or("");
  options.fuse_unknown = io::optional_bool(json, "fuse_unk", origin).value_or(false);
  options.byte_fallback = io::optional_bool(json, "byte_fallback", origin).value_or(false);
  options.ignore_merges = io::optional_bool(json, "ignore_merges", origin).value_or(false);
  std::vector<BpeMerge> merges;
  const Json& list = list_at(json, "merges", origin);
  merges.reserve(list.size());
  for (const Json& merge : list) {
    const bool is_header = merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version");
    if (!is_header) {
      merges.push_back(read_merge(merge, merges.size(), origin));
    }
  }
  return std::make_unique<Bpe>(read_vocabulary(object_at(json, "vocab", origin), origin), merges, std::move(options));
}

std::unique_ptr<const Model> read_unigram(const Json& json, const std::string& origin) {
  std::vector<UnigramToken> tokens;
  const Json& list = list_at(json, "vocab", origin);
  if (list.empty() || list.size() > static_cast<std::size_t>(kMaxTokenId)) {
    throw UserError(fmt::format("{}: vocab holds {} tokens; 1 to {} are allowed", origin, list.size(), kMaxTokenId));
  }
  tokens.reserve(list.size());
  for (const Json& entry : list) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      throw UserError(fmt::format("{}: vocab[{}] is not a token and its score", origin, tokens.size()));
    }
    tokens.push_back({entry[0].get<std::string>(), entry[1].get<double>()});
    check_token(tokens.back().token, origin);
  }
  UnigramOptions options;
  options.byte_fallback = io::optional_bool(json, "byte_fallback", origin).value_or(false);
  if (io::optional_int(json, "unk_id", origin)) {
    options.unknown_id = token_id(json.at("unk_id"), origin + ": unk_id");
  }
  return std::make_unique<Unigram>(tokens, options);
}

std::unique_ptr<const Model> read_wordpiece(const Json& json, const std::string& origin) {
  WordPieceOptions options;
  options.unknown_token = io::get_string(json, "unk_token", origin);
  options.continuing_prefix = io::optional_string(json, "continuing_subword_prefix", origin).value_or("##");
  const std::int64_t longest = io::optional_int(json, "max_input_chars_per_word", origin).value_or(100);
  if (longest < 0) {
    throw UserError(fmt::format("{}: max_input_chars_per_word is {}, below 0", origin, longest));
  }
  options.max_input_chars_per_word = static_cast<std::size_t>(longest);
  return std::make_unique<WordPiece>(read_vocabulary(object_at(json, "vocab", origin), origin), std::move(options));
}

std::unique_ptr<const Model> read_word_level(const Json& json, const std::string& origin) {
  return std::make_unique<WordLevel>(read_vocabulary(object_at(json, "vocab", origin), origin),
                                     io::get_string(json, "unk_token", origin));
}

// Files of old versions have no "type": the keys tell.
std::string model_type(const Json& json, const std::string& origin) {
  if (!json.is_object() || json.contains("type")) {
    return io::get_string(json, "type", origin + ": model");
  }
  if (json.contains("merges")) {
    return "BPE";
  }
  if (json.contains("vocab") && json.at("vocab").is_array()) {
    return "Unigram";
  }
  if (json.contains("max_input_chars_per_word")) {
    return "WordPiece";
  }
  return json.contains("vocab") ? "WordLevel" : "without a name";
}

std::unique_ptr<const Model> read_model(const Json& json, const std::string& type, const std::string& origin) {
  const std::string where = fmt::format("{}: model {}", origin, type);
  if (type == "BPE") {
    return read_bpe(json, where);
  }
  if (type == "Unigram") {
    return read_unigram(json, where);
  }
  if (type == "WordPiece") {
    return read_wordpiece(json, where);
  }
  if (type == "WordLevel") {
    return read_word_level(json, where);
  }
  refuse_component(origin, "model", type);
}

}  // namespace

std::unique_ptr<const Model> parse_model(const Json& json, const std::string& origin) {
  const std::string type = model_type(json, origin);
  try {
    return read_model(json, type, origin);
  } catch (const UserError& error) {
    const std::string message = error.what();
    throw UserError(message.starts_with(origin) ? message : fmt::format("{}: model {}: {}", origin, type, message));
  }
}

}  // namespace stft::tokenizer
