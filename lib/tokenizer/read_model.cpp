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

std::unique_ptr<const Model> read_model(const Json& json, ModelKind kind, const std::string& origin) {
  switch (kind) {
    case ModelKind::kBpe:
      return read_bpe(json, origin);
    case ModelKind::kUnigram:
      return read_unigram(json, origin);
    case ModelKind::kWordPiece:
      return read_wordpiece(json, origin);
    case ModelKind::kWordLevel:
      return read_word_level(json, origin);
  }
  throw InternalError("a kind of model that does not exist");
}

}  // namespace

std::string name_of(ModelKind kind) {
  switch (kind) {
    case ModelKind::kBpe:
      return "BPE";
    case ModelKind::kUnigram:
      return "Unigram";
    case ModelKind::kWordPiece:
      return "WordPiece";
    case ModelKind::kWordLevel:
      return "WordLevel";
  }
  return "";
}

ModelKind model_kind_of(const Json& json, const std::string& origin) {
  if (!json.is_object() || json.contains("type")) {
    const std::string type = io::get_string(json, "type", origin + ": model");
    for (const ModelKind kind : {ModelKind::kBpe, ModelKind::kUnigram, ModelKind::kWordPiece, ModelKind::kWordLevel}) {
      if (type == name_of(kind)) {
        return kind;
      }
    }
    refuse_component(origin, "model", type);
  }
  if (json.contains("merges")) {
    return ModelKind::kBpe;
  }
  if (json.contains("vocab") && json.at("vocab").is_array()) {
    return ModelKind::kUnigram;
  }
  if (json.contains("max_input_chars_per_word")) {
    return ModelKind::kWordPiece;
  }
  if (!json.contains("vocab")) {
    throw UserError(origin + ": model has neither a type nor a vocab");
  }
  return ModelKind::kWordLevel;
}

std::vector<std::string> model_warnings(const Json& json, const std::string& origin) {
  const std::string where = origin + ": model";
  const double dropout = json.is_object() ? io::optional_double(json, "dropout", where).value_or(0) : 0;
  if (dropout == 0) {
    return {};
  }
  return {fmt::format("{}: dropout is {}: merges are never dropped here, so that a text has the same ids every time",
                      where, dropout)};
}

std::unique_ptr<const Model> parse_model(const Json& json, const std::string& origin) {
  const ModelKind kind = model_kind_of(json, origin);
  const std::string where = fmt::format("{}: model {}", origin, name_of(kind));
  try {
    return read_model(json, kind, where);
  } catch (const UserError& error) {
    const std::string message = error.what();
    throw UserError(message.starts_with(origin) ? message : where + ": " + message);
  }
}

}  // namespace stft::tokenizer
