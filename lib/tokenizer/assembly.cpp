#include "tokenizer/assembly.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "tokenizer/class_stages.h"
#include "tokenizer/components.h"
#include "tokenizer/conflicts.h"
#include "tokenizer/sentencepiece_conversion.h"
#include "tokenizer/vocab_files.h"
#include "tokenizer/written_tokenizer.h"

namespace stft::tokenizer {
namespace {

using io::Json;

Json token_json(const AddedToken& token) {
  return {{"id", token.id},          {"content", token.content}, {"single_word", token.single_word},
          {"lstrip", token.lstrip},  {"rstrip", token.rstrip},   {"normalized", token.normalized},
          {"special", token.special}};
}

// Repeated tokens are passed over.
std::size_t distinct_count(const std::vector<AddedToken>& tokens) {
  std::set<std::string> contents;
  for (const AddedToken& token : tokens) {
    contents.insert(token.content);
  }
  contents.erase("");
  return contents.size();
}

// Extra special tokens that a class has when the files name none.
std::vector<AddedToken> class_extra(TokenizerClass id, const ClassOptions& options) {
  std::vector<std::string> contents;
  if (id == TokenizerClass::kT5) {
    for (std::int64_t i = 0; i < options.extra_ids; ++i) {
      contents.push_back(fmt::format("<extra_id_{}>", i));
    }
  } else if (id == TokenizerClass::kCamembert) {
    contents = {"<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"};
  }
  std::vector<AddedToken> tokens;
  for (std::string& content : contents) {
    AddedToken token;
    token.content = std::move(content);
    token.special = true;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

class Assembler {
 public:
  explicit Assembler(const ConfigFiles& files) : files_(files) {
    result_.chosen = choose_class(files);
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}) {
      if (files.has(name)) {
        result_.files.push_back(files.path_of(name));
      }
    }
  }

  AssembledTokenizer run() {
    if (files_.has("tokenizer.json")) {
      start_from("tokenizer.json");
      from_tokenizer_json();
    } else {
      from_vocabulary();
    }
    append_warnings(named_token_conflicts(files_, result_.tokens));
    append_warnings(id_conflicts(result_.tokens, result_.origin));
    return std::move(result_);
  }

 private:
  // What the stages of a class are made from.
  struct Parts {
    ModelParts model;
    Json charsmap;
    Json post_processor;         // tokenizer.json's, or null
    bool honours_flags = false;  // add_bos_token and add_eos_token
  };

  void start_from(const std::string& name) {
    result_.origin = files_.path_of(name);
    result_.files.insert(result_.files.begin(), result_.origin);
  }

  void append_warnings(std::vector<std::string> warnings) {
    std::move(warnings.begin(), warnings.end(), std::back_inserter(result_.warnings));
  }

  void from_tokenizer_json() {
    // Unigram scores that tie are decided by their last bits, so they have to be those that HF tokenizers reads.
    Json json = io::read_json_file(result_.origin, io::FloatReading::kSerde);
    if (!json.is_object()) {
      throw UserError(fmt::format("{}: {} instead of an object", result_.origin, io::json_type_name(json)));
    }
    ChosenClass& chosen = result_.chosen;
    if (chosen.id == TokenizerClass::kLlama &&
        (is_byte_level(member(json, "pre_tokenizer")) || is_byte_level(member(json, "decoder")))) {
      chosen = {TokenizerClass::kBackend, "TokenizersBackend", chosen.stated_by};
    }
    const Json& model = member(json, "model");
    if (chosen.id != TokenizerClass::kBackend && model.is_object() &&
        model_kind_of(model, result_.origin) != model_kind(chosen.id)) {
      result_.warnings.push_back(fmt::format("{}: model type {} is not that of {} ({}); tokenizer.json counts",
                                             result_.origin, name_of(model_kind_of(model, result_.origin)), chosen.name,
                                             chosen.stated_by));
      chosen = {TokenizerClass::kBackend, "TokenizersBackend", chosen.stated_by};
    } else if (is_rebuilt_elsewhere(chosen.name)) {
      result_.warnings.push_back(
          fmt::format("{}: is taken as it stands, while {} ({}) of transformers 5 builds its stages anew: ids may "
                      "differ from there",
                      result_.origin, chosen.name, chosen.stated_by));
    }
    TokenSources sources;
    sources.of_tokenizer_json = written_tokens(member(json, "added_tokens"), result_.origin);
    if (chosen.id == TokenizerClass::kBackend || !model.is_object() || !model.contains("vocab")) {
      take_as_written(std::move(json), std::move(sources));
    } else {
      rebuild(std::move(json), std::move(sources));
    }
    const SpecialTokens added =
        parse_post_processor(member(result_.stages, "post_processor"), result_.origin).special_tokens();
    append_warnings(special_flag_conflicts(files_, result_.tokens, added, result_.origin + ": post_processor"));
  }

  void take_as_written(Json json, TokenSources sources) {
    sources.extends_tokenizer_json = true;
    const Json& padding = member(json, "padding");
    if (padding.is_object() && member(padding, "pad_token").is_string()) {
      sources.defaults.push_back({"pad_token", padding.at("pad_token").get<std::string>()});
    }
    result_.tokens = read_special_tokens(files_, sources);
    const Json& model = member(json, "model");
    if (model.is_object()) {
      std::vector<AddedToken>& tokens = result_.tokens.added;
      const std::size_t written = distinct_count(sources.of_tokenizer_json);
      assign_ids(tokens, lookup_in(member(model, "vocab")));
      for (std::size_t i = written; i < tokens.size(); ++i) {
        json["added_tokens"].push_back(token_json(tokens[i]));
      }
      // About its own ids components.h has its say.
      std::erase_if(result_.tokens.stated_ids, [&](const auto& entry) { return entry.second.path == result_.origin; });
    }
    result_.stages = std::move(json);
  }

  void rebuild(Json json, TokenSources sources) {
    const ClassOptions options = read_class_options(files_, result_.chosen.id);
    sources.defaults = named_defaults(result_.chosen.id);
    sources.extra = class_extra(result_.chosen.id, options);
    result_.tokens = read_special_tokens(files_, sources);
    Json& model = json["model"];
    check_vocabulary(model.at("vocab"));
    Parts parts;
    parts.model.vocab = std::move(model["vocab"]);
    parts.model.merges = model.contains("merges") ? std::move(model["merges"]) : Json();
    parts.charsmap = written_charsmap(member(json, "normalizer"));
    parts.post_processor = member(json, "post_processor");
    build(std::move(parts), options);
    append_warnings(replaced_stages(json, result_.stages, result_.origin, result_.chosen));
  }

  void check_vocabulary(const Json& vocab) const {
    const bool is_list = model_kind(result_.chosen.id) == ModelKind::kUnigram;
    if (is_list ? !vocab.is_array() : !vocab.is_object()) {
      throw UserError(fmt::format("{}: model: vocab: {} instead of {}", result_.origin, io::json_type_name(vocab),
                                  is_list ? "a list" : "an object"));
    }
  }

  void from_vocabulary() {
    ChosenClass& chosen = result_.chosen;
    const auto sentencepiece = sentencepiece_name();
    if (chosen.stated_by.empty()) {
      refuse_unknown_model_type();
      chosen.id = class_of_files();
      chosen.name = chosen.id == TokenizerClass::kBert   ? "BertTokenizer"
                    : chosen.id == TokenizerClass::kGpt2 ? "GPT2Tokenizer"
                                                         : "TokenizersBackend";
    } else if (chosen.id == TokenizerClass::kBackend && chosen.name != "TokenizersBackend" &&
               chosen.name != "PreTrainedTokenizerFast") {
      throw UserError(fmt::format("{}: {} without a tokenizer.json is not available", chosen.stated_by, chosen.name));
    }
    const VocabularyKind kind = vocabulary_kind(chosen.id);
    const bool complete = kind == VocabularyKind::kVocabTxt ? files_.has("vocab.txt")
                          : kind == VocabularyKind::kVocabAndMerges
                              ? files_.has("vocab.json") && files_.has("merges.txt")
                              : sentencepiece.has_value();
    if (!complete) {
      throw UserError(fmt::format(
          "{}: no tokenizer.json, and not what {} reads either: {}", files_.directory, chosen.name,
          kind == VocabularyKind::kVocabTxt         ? "vocab.txt"
          : kind == VocabularyKind::kVocabAndMerges ? "vocab.json with merges.txt"
                                                    : "tokenizer.model, spiece.model or sentencepiece.bpe.model"));
    }
    if (kind == VocabularyKind::kSentencePiece) {
      start_from(*sentencepiece);
      from_sentencepiece();
    } else {
      start_from(kind == VocabularyKind::kVocabTxt ? "vocab.txt" : "vocab.json");
      from_token_files(kind);
    }
    const SpecialTokens added =
        parse_post_processor(member(result_.stages, "post_processor"), result_.origin).special_tokens();
    append_warnings(special_flag_conflicts(files_, result_.tokens, added, chosen.name));
  }

  std::optional<std::string> sentencepiece_name() const {
    for (const char* name : {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model"}) {
      if (files_.has(name)) {
        return name;
      }
    }
    return std::nullopt;
  }

  // For a directory that names no class: what its files suggest.
  TokenizerClass class_of_files() const {
    if (files_.has("vocab.txt")) {
      return TokenizerClass::kBert;
    }
    return files_.has("vocab.json") && files_.has("merges.txt") ? TokenizerClass::kGpt2 : TokenizerClass::kBackend;
  }

  void refuse_unknown_model_type() const {
    const Json& type = member(files_.model_config, "model_type");
    if (type.is_string()) {
      throw UserError(
          fmt::format("{}: no tokenizer.json, and the tokenizer class of model_type '{}' is not known: name "
                      "it in tokenizer_config.json: tokenizer_class",
                      files_.path_of("config.json"), type.get<std::string>()));
    }
  }

  void from_token_files(VocabularyKind kind) {
    const ClassOptions options = read_class_options(files_, result_.chosen.id);
    result_.tokens = read_special_tokens(files_, {named_defaults(result_.chosen.id), {}, {}, false});
    Parts parts;
    parts.honours_flags = true;
    if (kind == VocabularyKind::kVocabTxt) {
      parts.model.vocab = read_vocab_txt(result_.origin);
    } else {
      parts.model.vocab = read_vocab_json(result_.origin);
      parts.model.merges = read_merges_txt(files_.path_of("merges.txt"), parts.model.vocab);
      result_.files.insert(result_.files.begin() + 1, files_.path_of("merges.txt"));
    }
    build(std::move(parts), options);
  }

  void from_sentencepiece() {
    const SentencePieceFile file = read_sentencepiece_file(result_.origin);
    if (file.algorithm != SentencePieceAlgorithm::kUnigram && file.algorithm != SentencePieceAlgorithm::kBpe) {
      throw UserError(fmt::format("{}: sentencepiece models of type '{}' are not available", result_.origin,
                                  file.algorithm == SentencePieceAlgorithm::kWord ? "word" : "char"));
    }
    const TokenizerClass id = result_.chosen.id;
    const ClassOptions options = read_class_options(files_, id);
    TokenSources sources;
    sources.defaults = id == TokenizerClass::kBackend ? named_pieces(file) : named_defaults(id);
    sources.extra = added_pieces(file);
    if (id == TokenizerClass::kBackend) {
      // There user-defined pieces are cut out by the pre-tokenizer.
      std::erase_if(sources.extra, [](const AddedToken& token) { return !token.special; });
    }
    if (id == TokenizerClass::kT5) {
      const auto extra_ids = class_extra(id, options);
      sources.extra.insert(sources.extra.end(), extra_ids.begin(), extra_ids.end());
    }
    result_.tokens = read_special_tokens(files_, sources);
    if (id == TokenizerClass::kBackend) {
      build_backend(file, options);
      return;
    }
    ConvertedVocabulary converted = convert_vocabulary(file, id, result_.tokens, options.extra_ids);
    Parts parts;
    parts.model.vocab = std::move(converted.vocab);
    parts.model.merges = std::move(converted.merges);
    parts.charsmap = charsmap_json(file);
    parts.honours_flags = true;
    build(std::move(parts), options);
  }

  void build_backend(const SentencePieceFile& file, const ClassOptions& options) {
    std::map<std::int32_t, std::string> renamed;
    for (const auto& [content, stated] : result_.tokens.stated_ids) {
      renamed[stated.id] = content;
    }
    result_.stages = backend_stages(file, renamed, options.legacy);
    if (file.add_dummy_prefix) {
      for (AddedToken& token : result_.tokens.added) {
        token.normalized = token.normalized && !result_.tokens.stated_ids.contains(token.content);
      }
    }
    assign_ids(result_.tokens.added, lookup_in(result_.stages.at("model").at("vocab")));
    finish(flags_template());
  }

  void build(Parts parts, const ClassOptions& options) {
    const TokenizerClass id = result_.chosen.id;
    parts.model.unk_token = result_.tokens.find("unk_token").value_or("");
    result_.stages["normalizer"] = class_normalizer(id, options, parts.charsmap);
    result_.stages["pre_tokenizer"] = class_pre_tokenizer(id, options);
    assign_ids(result_.tokens.added, lookup_in(parts.model.vocab));
    result_.stages["model"] = class_model(id, std::move(parts.model));
    Json post_processor = class_post_processor(id, options, named_specials(id));
    if (post_processor.is_null()) {
      post_processor = std::move(parts.post_processor);
    }
    const bool has_flags =
        parts.honours_flags && (config_flag(files_, "add_bos_token") || config_flag(files_, "add_eos_token"));
    if (post_processor.is_null() && id == TokenizerClass::kAlbert && !has_flags) {
      post_processor = template_processing({special("cls_token")}, {special("sep_token")});
    }
    if (post_processor.is_null() && parts.honours_flags) {
      post_processor = flags_template();
    }
    finish(std::move(post_processor));
  }

  void finish(Json post_processor) {
    result_.stages["post_processor"] = std::move(post_processor);
    Json& list = result_.stages["added_tokens"] = Json::array();
    for (const AddedToken& token : result_.tokens.added) {
      list.push_back(token_json(token));
    }
  }

  // add_bos_token and add_eos_token of tokenizer_config.json as a template.
  Json flags_template() const {
    std::vector<SpecialToken> before;
    std::vector<SpecialToken> after;
    if (config_flag(files_, "add_bos_token").value_or(false) && result_.tokens.find("bos_token")) {
      before.push_back(special("bos_token"));
    }
    if (config_flag(files_, "add_eos_token").value_or(false) && result_.tokens.find("eos_token")) {
      after.push_back(special("eos_token"));
    }
    return template_processing(before, after);
  }

  // Only the tokens that the class needs; a class that needs one that a file sets to null is refused.
  NamedSpecials named_specials(TokenizerClass id) const {
    NamedSpecials specials;
    if (id == TokenizerClass::kBert || id == TokenizerClass::kMpnet || id == TokenizerClass::kRoberta ||
        id == TokenizerClass::kDebertaV2) {
      specials.cls = special("cls_token");
      specials.sep = special("sep_token");
    } else if (id == TokenizerClass::kClip || id == TokenizerClass::kXlmRoberta || id == TokenizerClass::kCamembert) {
      specials.bos = special("bos_token");
      specials.eos = special("eos_token");
    } else if (id == TokenizerClass::kT5) {
      specials.eos = special("eos_token");
    }
    return specials;
  }

  SpecialToken special(const std::string& name) const {
    const auto content = result_.tokens.find(name);
    if (!content) {
      throw UserError(fmt::format("{}: {} is null, but {} needs it", files_.path_of("tokenizer_config.json"), name,
                                  result_.chosen.name));
    }
    for (const AddedToken& token : result_.tokens.added) {
      if (token.content == *content) {
        return {token.id, token.content};
      }
    }
    throw UserError(fmt::format("{}: {} is empty", files_.path_of("tokenizer_config.json"), name));
  }

  const ConfigFiles& files_;
  AssembledTokenizer result_;
};

}  // namespace

AssembledTokenizer assemble_tokenizer(const ConfigFiles& files) {
  return Assembler(files).run();
}

}  // namespace stft::tokenizer
