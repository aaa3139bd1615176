#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "tokenizer/component_json.h"
#include "tokenizer/components.h"

namespace stft::tokenizer {
namespace {

using io::Json;

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

SpecialTokens template_processor(const Json& json, const std::string& origin) {
  SpecialTokens result;
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

class PostProcessorReader {
 public:
  explicit PostProcessorReader(std::string origin) : origin_(std::move(origin)) {}

  void read(const Json& json, int depth) {
    const std::string type = io::get_string(json, "type", origin_ + ": post_processor");
    const std::string where = origin_ + ": post_processor " + type;
    if (steps_.size() >= kMaxSteps) {
      throw UserError(fmt::format("{}: more than {} steps", where, kMaxSteps));
    }
    if (type == "Sequence") {
      if (depth == kMaxSequenceDepth) {
        throw UserError(where + ": nested too deeply");
      }
      for (const Json& member : list_at(json, "processors", where)) {
        read(member, depth + 1);
      }
    } else if (type == "TemplateProcessing") {
      add(template_processor(json, where));
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      if (type == "RobertaProcessing") {
        read_trimming(json, where);
      }
      SpecialTokens specials;
      specials.prefix.push_back(special_pair(json, "cls", where));
      specials.suffix.push_back(special_pair(json, "sep", where));
      add(std::move(specials));
    } else if (type == "ByteLevel") {
      read_trimming(json, where);
    } else {
      refuse_component(origin_, "post_processor", type);
    }
  }

  std::vector<PostProcessorStep> take() { return std::move(steps_); }

 private:
  // (g++ 12 takes a temporary variant of these for uninitialized.)
  void add(SpecialTokens specials) { steps_.emplace_back(std::move(specials)); }

  void read_trimming(const Json& json, const std::string& where) {
    if (io::optional_bool(json, "trim_offsets", where).value_or(true)) {
      steps_.push_back(OffsetTrimming{io::optional_bool(json, "add_prefix_space", where).value_or(true)});
    }
  }

  std::string origin_;
  std::vector<PostProcessorStep> steps_;
};

}  // namespace

PostProcessor parse_post_processor(const Json& json, const std::string& origin) {
  PostProcessorReader reader(origin);
  if (!json.is_null()) {
    reader.read(json, 0);
  }
  return PostProcessor(reader.take());
}

}  // namespace stft::tokenizer
