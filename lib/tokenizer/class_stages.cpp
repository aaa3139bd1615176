#include "tokenizer/class_stages.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/stage_json.h"

namespace stft::tokenizer {
namespace {

using io::Json;

constexpr std::int64_t kMaxExtraIds = 10'000;

// What CLIPTokenizer cuts words with.
constexpr const char* kClipPattern =
    R"(<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)";

Json byte_level(bool add_prefix_space, bool use_regex) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json type_only(const std::string& type) {
  return Json{{"type", type}};
}

Json roberta_processing(const SpecialToken& first, const SpecialToken& last, bool trims, bool add_prefix_space) {
  return {{"type", "RobertaProcessing"},
          {"sep", {last.token, last.id}},
          {"cls", {first.token, first.id}},
          {"trim_offsets", trims},
          {"add_prefix_space", add_prefix_space}};
}

Json bpe(ModelParts parts) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(parts.vocab)},
          {"merges", std::move(parts.merges)}};
}

std::int64_t unk_id_of(const ModelParts& parts, std::int64_t otherwise) {
  for (std::size_t id = 0; id < parts.vocab.size(); ++id) {
    const Json& entry = parts.vocab[id];
    if (entry.is_array() && !entry.empty() && entry[0] == parts.unk_token) {
      return static_cast<std::int64_t>(id);
    }
  }
  return otherwise;
}

Json unigram(TokenizerClass id, ModelParts parts) {
  const std::int64_t unk_id = id == TokenizerClass::kT5           ? 2
                              : id == TokenizerClass::kXlmRoberta ? 3
                              : id == TokenizerClass::kAlbert     ? 1
                              : id == TokenizerClass::kDebertaV2  ? unk_id_of(parts, 1)
                                                                  : unk_id_of(parts, 0);
  return {{"type", "Unigram"}, {"unk_id", unk_id}, {"byte_fallback", false}, {"vocab", std::move(parts.vocab)}};
}

}  // namespace

ClassOptions read_class_options(const ConfigFiles& files, TokenizerClass id) {
  ClassOptions options;
  options.do_lower_case = config_flag(files, "do_lower_case").value_or(id != TokenizerClass::kDebertaV2);
  if (const auto strips = config_flag(files, "strip_accents")) {
    options.strip_accents = *strips;
  }
  options.tokenize_chinese_chars = config_flag(files, "tokenize_chinese_chars").value_or(true);
  const bool prefixes = id == TokenizerClass::kLlama || id == TokenizerClass::kXlmRoberta ||
                        id == TokenizerClass::kCamembert || id == TokenizerClass::kAlbert ||
                        id == TokenizerClass::kDebertaV2;
  options.add_prefix_space = config_flag(files, "add_prefix_space").value_or(prefixes);
  options.trim_offsets = config_flag(files, "trim_offsets").value_or(true);
  options.legacy = config_flag(files, "legacy").value_or(id == TokenizerClass::kBackend);
  options.keep_accents = config_flag(files, "keep_accents").value_or(false);
  options.split_by_punct = config_flag(files, "split_by_punct").value_or(false);
  const std::string path = files.path_of("tokenizer_config.json");
  options.extra_ids = io::optional_int(files.tokenizer_config, "extra_ids", path).value_or(100);
  if (options.extra_ids < 0 || options.extra_ids > kMaxExtraIds) {
    throw UserError(
        fmt::format("{}: extra_ids is {}; it must be between 0 and {}", path, options.extra_ids, kMaxExtraIds));
  }
  return options;
}

Json class_normalizer(TokenizerClass id, const ClassOptions& options, const Json& charsmap) {
  switch (id) {
    case TokenizerClass::kBert:
    case TokenizerClass::kMpnet:
      return {{"type", "BertNormalizer"},
              {"clean_text", true},
              {"handle_chinese_chars", options.tokenize_chinese_chars},
              {"strip_accents", options.strip_accents},
              {"lowercase", options.do_lower_case}};
    case TokenizerClass::kQwen2:
      return type_only("NFC");
    case TokenizerClass::kClip:
      return normalizers_json(
          Json::array({type_only("NFC"), replace_json({{"Regex", "\\s+"}}, " "), type_only("Lowercase")}));
    case TokenizerClass::kGemma:
      return replace_json({{"String", " "}}, kMetaspace);
    case TokenizerClass::kT5:
    case TokenizerClass::kXlmRoberta:
    case TokenizerClass::kCamembert:
      return charsmap.is_null() ? Json() : precompiled_json(charsmap);
    case TokenizerClass::kAlbert: {
      Json list = Json::array({replace_json({{"String", "``"}}, "\""), replace_json({{"String", "''"}}, "\"")});
      if (!options.keep_accents) {
        list.push_back(type_only("NFKD"));
        list.push_back(type_only("StripAccents"));
      }
      if (options.do_lower_case) {
        list.push_back(type_only("Lowercase"));
      }
      if (!charsmap.is_null()) {
        list.push_back(precompiled_json(charsmap));
      }
      return normalizers_json(std::move(list));
    }
    case TokenizerClass::kDebertaV2: {
      Json list = Json::array();
      if (options.do_lower_case) {
        list.push_back(type_only("Lowercase"));
      }
      list.push_back(replace_json({{"Regex", R"(\s{2,}|[\n\r\t])"}}, " "));
      list.push_back(type_only("NFC"));
      list.push_back({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}});
      return normalizers_json(std::move(list));
    }
    default:
      return {};
  }
}

Json class_pre_tokenizer(TokenizerClass id, const ClassOptions& options) {
  switch (id) {
    case TokenizerClass::kBert:
    case TokenizerClass::kMpnet:
      return type_only("BertPreTokenizer");
    case TokenizerClass::kRoberta:
    case TokenizerClass::kGpt2:
      return byte_level(options.add_prefix_space, true);
    case TokenizerClass::kQwen2:
      return pre_tokenizers_json(Json::array({split_json({{"Regex", text_of(WordPattern::kQwen2)}}, "Isolated", false),
                                              byte_level(options.add_prefix_space, false)}));
    case TokenizerClass::kClip:
      return pre_tokenizers_json(
          Json::array({split_json({{"Regex", kClipPattern}}, "Removed", true), byte_level(false, true)}));
    case TokenizerClass::kLlama:
      return metaspace_json(!options.add_prefix_space ? "never" : options.legacy ? "always" : "first", false);
    case TokenizerClass::kGemma:
      return split_json({{"String", " "}}, "MergedWithPrevious", false);
    case TokenizerClass::kT5:
      return pre_tokenizers_json(Json::array({type_only("WhitespaceSplit"), metaspace_json("always", true)}));
    case TokenizerClass::kXlmRoberta:
    case TokenizerClass::kCamembert:
    case TokenizerClass::kAlbert:
      return pre_tokenizers_json(Json::array(
          {type_only("WhitespaceSplit"), metaspace_json(options.add_prefix_space ? "always" : "never", true)}));
    case TokenizerClass::kDebertaV2: {
      Json list = Json::array();
      if (options.split_by_punct) {
        list.push_back({{"type", "Punctuation"}, {"behavior", "Isolated"}});
      }
      list.push_back(metaspace_json(options.add_prefix_space ? "always" : "first", true));
      return pre_tokenizers_json(std::move(list));
    }
    case TokenizerClass::kBackend:
      return {};
  }
  return {};
}

Json class_model(TokenizerClass id, ModelParts parts) {
  const ModelKind kind = model_kind(id);
  if (kind == ModelKind::kWordPiece) {
    return {{"type", "WordPiece"},
            {"unk_token", parts.unk_token},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 100},
            {"vocab", std::move(parts.vocab)}};
  }
  if (kind == ModelKind::kUnigram) {
    return unigram(id, std::move(parts));
  }
  const std::string unk_token = parts.unk_token;
  Json model = bpe(std::move(parts));
  if (id == TokenizerClass::kLlama || id == TokenizerClass::kGemma) {
    model["fuse_unk"] = true;
    model["byte_fallback"] = true;
  }
  if (id == TokenizerClass::kGemma || id == TokenizerClass::kClip) {
    model["unk_token"] = unk_token;
  }
  if (id == TokenizerClass::kClip) {
    model["end_of_word_suffix"] = "</w>";
  }
  return model;
}

Json class_post_processor(TokenizerClass id, const ClassOptions& options, const NamedSpecials& specials) {
  switch (id) {
    case TokenizerClass::kBert:
    case TokenizerClass::kDebertaV2:
      return template_processing({specials.cls}, {specials.sep});
    case TokenizerClass::kMpnet:
      return roberta_processing(specials.cls, specials.sep, true, false);
    case TokenizerClass::kRoberta:
      return roberta_processing(specials.cls, specials.sep, options.trim_offsets, options.add_prefix_space);
    case TokenizerClass::kClip:
      return roberta_processing(specials.bos, specials.eos, false, false);
    case TokenizerClass::kT5:
      return template_processing({}, {specials.eos});
    case TokenizerClass::kXlmRoberta:
    case TokenizerClass::kCamembert:
      return template_processing({specials.bos}, {specials.eos});
    default:
      return {};
  }
}

Json template_processing(const std::vector<SpecialToken>& before, const std::vector<SpecialToken>& after) {
  Json single = Json::array();
  Json specials = Json::object();
  const auto append = [&](const std::vector<SpecialToken>& tokens) {
    for (const SpecialToken& token : tokens) {
      single.push_back({{"SpecialToken", {{"id", token.token}, {"type_id", 0}}}});
      specials[token.token] = {
          {"id", token.token}, {"ids", Json::array({token.id})}, {"tokens", Json::array({token.token})}};
    }
  };
  append(before);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  append(after);
  return {{"type", "TemplateProcessing"}, {"single", std::move(single)}, {"special_tokens", std::move(specials)}};
}

}  // namespace stft::tokenizer
