#include "tokenizer/sentencepiece_conversion.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/stage_json.h"
#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

using io::Json;
using Ids = std::unordered_map<std::string_view, std::int32_t>;

// The byte positions inside a token where it may be cut in two.
std::vector<std::size_t> cuts_of(std::string_view token) {
  std::vector<std::size_t> cuts;
  for (std::size_t position = decode_char(token, 0).length; position < token.size();
       position += decode_char(token, position).length) {
    cuts.push_back(position);
  }
  return cuts;
}

Json scored(const std::string& piece, double score) {
  return Json::array({piece, score});
}

// Merges from the pieces alone: a piece may be made of any two others; the earlier piece is merged first, of its halves
// those with the shorter left one.
Json merges_by_id(const std::vector<SentencePieceEntry>& pieces) {
  Ids ids;
  for (const SentencePieceEntry& entry : pieces) {
    ids.emplace(entry.piece, static_cast<std::int32_t>(ids.size()));
  }
  Json merges = Json::array();
  for (const SentencePieceEntry& entry : pieces) {
    const std::string_view piece = entry.piece;
    for (const std::size_t cut : cuts_of(piece)) {
      if (ids.contains(piece.substr(0, cut)) && ids.contains(piece.substr(cut))) {
        merges.push_back({piece.substr(0, cut), piece.substr(cut)});
      }
    }
  }
  return merges;
}

// The merges of normal pieces, the best score first.
Json merges_by_score(const SentencePieceFile& file, const std::vector<std::string>& contents) {
  Ids normal;
  for (std::size_t id = 0; id < contents.size(); ++id) {
    if (file.pieces[id].type == SentencePieceType::kNormal) {
      normal.emplace(contents[id], static_cast<std::int32_t>(id));
    }
  }
  std::vector<std::tuple<float, std::size_t, std::string_view, std::string_view>> ranked;
  for (std::size_t id = 0; id < contents.size(); ++id) {
    if (file.pieces[id].type != SentencePieceType::kNormal) {
      continue;
    }
    const std::string_view piece = contents[id];
    for (const std::size_t cut : cuts_of(piece)) {
      if (normal.contains(piece.substr(0, cut)) && normal.contains(piece.substr(cut))) {
        ranked.emplace_back(-file.pieces[id].score, id, piece.substr(0, cut), piece.substr(cut));
      }
    }
  }
  std::sort(ranked.begin(), ranked.end());
  Json merges = Json::array();
  for (const auto& [score, id, left, right] : ranked) {
    merges.push_back({left, right});
  }
  return merges;
}

Json piece_ids(const std::vector<std::string>& contents) {
  Json vocab = Json::object();
  for (std::size_t id = 0; id < contents.size(); ++id) {
    vocab[contents[id]] = id;
  }
  return vocab;
}

void append_pieces(const SentencePieceFile& file, std::size_t from, Json& vocab) {
  for (std::size_t id = from; id < file.pieces.size(); ++id) {
    vocab.push_back(scored(file.pieces[id].piece, file.pieces[id].score));
  }
}

std::string named(const NamedTokens& tokens, const char* name, const char* otherwise) {
  return tokens.find(name).value_or(otherwise);
}

std::vector<std::string> renamed_contents(const SentencePieceFile& file,
                                          const std::map<std::int32_t, std::string>& renamed) {
  std::set<std::string> kept;
  for (std::size_t id = 0; id < file.pieces.size(); ++id) {
    if (!renamed.contains(static_cast<std::int32_t>(id))) {
      kept.insert(file.pieces[id].piece);
    }
  }
  std::vector<std::string> contents;
  for (const SentencePieceEntry& entry : file.pieces) {
    const auto found = renamed.find(static_cast<std::int32_t>(contents.size()));
    contents.push_back(found == renamed.end() || kept.contains(found->second) ? entry.piece : found->second);
  }
  return contents;
}

std::string escaped(const std::string& text) {
  static const std::string_view special = "()[]{}?*+-|^$\\.&~# \t\n\r\v\f";
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) {
      result.push_back('\\');
    }
    result.push_back(c);
  }
  return result;
}

std::size_t char_count(const std::string& text) {
  return text.empty() ? 0 : cuts_of(text).size() + 1;
}

// A regular expression that matches the user-defined pieces, the longest first; empty when there are none.
std::string user_defined_pattern(const SentencePieceFile& file, const std::vector<std::string>& contents) {
  std::vector<std::string> pieces;
  for (std::size_t id = 0; id < contents.size(); ++id) {
    if (file.pieces[id].type == SentencePieceType::kUserDefined) {
      pieces.push_back(contents[id]);
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const std::string& a, const std::string& b) { return char_count(a) > char_count(b); });
  std::string pattern;
  for (const std::string& piece : pieces) {
    pattern += (pattern.empty() ? "" : "|") + escaped(piece);
  }
  return pattern;
}

}  // namespace

ConvertedVocabulary convert_vocabulary(const SentencePieceFile& file, TokenizerClass id, const NamedTokens& tokens,
                                       std::int64_t extra_ids) {
  ConvertedVocabulary result;
  if (model_kind(id) == ModelKind::kBpe) {
    std::vector<std::string> contents;
    for (const SentencePieceEntry& entry : file.pieces) {
      contents.push_back(entry.piece);
    }
    return {piece_ids(contents), merges_by_id(file.pieces)};
  }
  Json& vocab = result.vocab = Json::array();
  if (id == TokenizerClass::kXlmRoberta) {
    for (const auto& [name, otherwise] : {std::pair("bos_token", "<s>"), std::pair("pad_token", "<pad>"),
                                          std::pair("eos_token", "</s>"), std::pair("unk_token", "<unk>")}) {
      vocab.push_back(scored(named(tokens, name, otherwise), 0));
    }
    append_pieces(file, 3, vocab);
    vocab.push_back(scored(named(tokens, "mask_token", "<mask>"), 0));
  } else if (id == TokenizerClass::kCamembert) {
    vocab.push_back(scored("<s>NOTUSED", 0));
    vocab.push_back(scored(named(tokens, "pad_token", "<pad>"), 0));
    vocab.push_back(scored("</s>NOTUSED", 0));
    vocab.push_back(scored(named(tokens, "unk_token", "<unk>"), 0));
    vocab.push_back(scored("<unk>NOTUSED", -100));
    append_pieces(file, 1, vocab);
    vocab.push_back(scored(named(tokens, "mask_token", "<mask>"), 0));
  } else {
    append_pieces(file, 0, vocab);
    for (std::int64_t i = id == TokenizerClass::kT5 ? extra_ids : 0; i-- > 0;) {
      vocab.push_back(scored("<extra_id_" + std::to_string(i) + ">", 0));
    }
  }
  return result;
}

Json charsmap_json(const SentencePieceFile& file) {
  if (file.charsmap.empty()) {
    return {};
  }
  static const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::string& bytes = file.charsmap;
  std::string text;
  text.reserve(bytes.size() / 3 * 4 + 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text.push_back(i + k <= bytes.size() ? digits[group >> (18 - 6 * k) & 63] : '=');
    }
  }
  return text;
}

std::vector<AddedToken> added_pieces(const SentencePieceFile& file) {
  std::vector<AddedToken> tokens;
  for (const SentencePieceEntry& entry : file.pieces) {
    if (entry.type == SentencePieceType::kControl || entry.type == SentencePieceType::kUserDefined) {
      AddedToken token;
      token.content = entry.piece;
      token.special = entry.type == SentencePieceType::kControl;
      tokens.push_back(std::move(token));
    }
  }
  return tokens;
}

std::vector<NamedDefault> named_pieces(const SentencePieceFile& file) {
  std::vector<NamedDefault> named;
  if (file.bos_id >= 0) {
    named.push_back({"bos_token", file.bos_piece.empty() ? "<s>" : file.bos_piece});
  }
  if (file.eos_id >= 0) {
    named.push_back({"eos_token", file.eos_piece.empty() ? "</s>" : file.eos_piece});
  }
  named.push_back({"unk_token", file.unk_piece.empty() ? "<unk>" : file.unk_piece});
  return named;
}

Json backend_stages(const SentencePieceFile& file, const std::map<std::int32_t, std::string>& renamed, bool legacy) {
  Json stages;
  const bool is_unigram = file.algorithm == SentencePieceAlgorithm::kUnigram;
  const std::vector<std::string> contents =
      renamed_contents(file, is_unigram ? std::map<std::int32_t, std::string>() : renamed);
  const std::string pattern = user_defined_pattern(file, contents);
  if (is_unigram) {
    Json vocab = Json::array();
    append_pieces(file, 0, vocab);
    stages["model"] = {{"type", "Unigram"},
                       {"unk_id", file.unk_id},
                       {"byte_fallback", file.byte_fallback},
                       {"vocab", std::move(vocab)}};
  } else {
    stages["model"] = {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", file.unk_piece},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", true},
                       {"byte_fallback", file.byte_fallback},
                       {"ignore_merges", !pattern.empty()},
                       {"vocab", piece_ids(contents)},
                       {"merges", merges_by_score(file, contents)}};
  }
  Json normalizers = Json::array();
  if (!file.charsmap.empty()) {
    normalizers.push_back(precompiled_json(charsmap_json(file)));
  }
  if (file.remove_extra_whitespaces) {
    normalizers.push_back(replace_json({{"Regex", "\\A +| +\\z"}}, ""));
    normalizers.push_back(replace_json({{"Regex", " {2,}"}}, " "));
  }
  if (file.escape_whitespaces) {
    normalizers.push_back(replace_json({{"String", " "}}, kMetaspace));
  }
  Json pre_tokenizers = Json::array();
  if (file.add_dummy_prefix) {
    if (legacy) {
      normalizers.push_back(replace_json({{"Regex", "\\A\u2581"}}, "\u2581\u2581"));
    }
    pre_tokenizers.push_back(metaspace_json(legacy ? "always" : "first", false));
  }
  if (!pattern.empty()) {
    pre_tokenizers.push_back(split_json({{"Regex", pattern}}, "Isolated", false));
  }
  stages["normalizer"] = normalizers_json(std::move(normalizers));
  stages["pre_tokenizer"] = pre_tokenizers.empty() ? Json() : pre_tokenizers_json(std::move(pre_tokenizers));
  return stages;
}

}  // namespace stft::tokenizer
