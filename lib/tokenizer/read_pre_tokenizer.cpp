#include <fmt/format.h>

#include <map>
#include <utility>

#include "base/error.h"
#include "tokenizer/component_json.h"
#include "tokenizer/components.h"

namespace stft::tokenizer {
namespace {

using io::Json;

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

char32_t single_char(const Json& json, const std::string& key, const std::string& origin) {
  const std::u32string chars = code_points(io::get_string(json, key, origin));
  if (chars.size() != 1) {
    throw UserError(fmt::format("{}: {} holds {} characters instead of one", origin, key, chars.size()));
  }
  return chars.front();
}

PreTokenizerStep split(const Json& json, const std::string& origin) {
  const Json& pattern = object_at(json, "pattern", origin);
  const SplitBehavior behavior = split_behavior(io::get_string(json, "behavior", origin), origin);
  const bool invert = io::optional_bool(json, "invert", origin).value_or(false);
  if (pattern.contains("Regex")) {
    const auto known = known_word_pattern(io::get_string(pattern, "Regex", origin + " pattern"));
    // These patterns match everywhere, so that nothing is left between the matches.
    if (known && behavior == SplitBehavior::kIsolated) {
      return WordPatternPreTokenizer{*known};
    }
  }
  return SplitPreTokenizer{text_pattern(pattern, origin + " pattern"), behavior, invert};
}

PrependScheme prepend_scheme(const Json& json, const std::string& origin) {
  const auto name = io::optional_string(json, "prepend_scheme", origin);
  const auto before = io::optional_bool(json, "add_prefix_space", origin);  // what old versions wrote
  if (!name) {
    return before.value_or(true) ? PrependScheme::kAlways : PrependScheme::kNever;
  }
  const std::map<std::string, PrependScheme> known = {
      {"always", PrependScheme::kAlways}, {"first", PrependScheme::kFirst}, {"never", PrependScheme::kNever}};
  const auto found = known.find(*name);
  if (found == known.end()) {
    throw UserError(fmt::format("{}: prepend_scheme '{}' is not one of always, first, never", origin, *name));
  }
  if (before == false && found->second != PrependScheme::kNever) {
    throw UserError(fmt::format("{}: add_prefix_space is false, but prepend_scheme is '{}'", origin, *name));
  }
  return found->second;
}

MetaspacePreTokenizer metaspace(const Json& json, const std::string& origin) {
  return {single_char(json, "replacement", origin), prepend_scheme(json, origin),
          io::optional_bool(json, "split", origin).value_or(true)};
}

ByteLevelPreTokenizer byte_level(const Json& json, const std::string& origin) {
  return {io::optional_bool(json, "add_prefix_space", origin).value_or(true),
          io::optional_bool(json, "use_regex", origin).value_or(true)};
}

class PreTokenizerReader {
 public:
  explicit PreTokenizerReader(std::string origin) : origin_(std::move(origin)) {}

  void read(const Json& json, int depth) {
    const std::string type = io::get_string(json, "type", origin_ + ": pre_tokenizer");
    const std::string where = origin_ + ": pre_tokenizer " + type;
    if (steps_.size() >= kMaxSteps) {
      throw UserError(fmt::format("{}: more than {} steps", where, kMaxSteps));
    }
    if (type == "Sequence") {
      if (depth == kMaxSequenceDepth) {
        throw UserError(where + ": nested too deeply");
      }
      for (const Json& member : list_at(json, "pretokenizers", where)) {
        read(member, depth + 1);
      }
    } else {
      steps_.push_back(step(json, type, where));
    }
  }

  std::vector<PreTokenizerStep> take() { return std::move(steps_); }

 private:
  PreTokenizerStep step(const Json& json, const std::string& type, const std::string& where) const {
    if (type == "BertPreTokenizer") {
      return BertPreTokenizer{};
    }
    if (type == "Whitespace") {
      return WhitespacePreTokenizer{};
    }
    if (type == "WhitespaceSplit") {
      return WhitespaceSplitPreTokenizer{};
    }
    if (type == "Punctuation") {
      const std::string behavior = io::optional_string(json, "behavior", where).value_or("Isolated");
      return PunctuationPreTokenizer{split_behavior(behavior, where)};
    }
    if (type == "Digits") {
      return DigitsPreTokenizer{io::optional_bool(json, "individual_digits", where).value_or(false)};
    }
    if (type == "CharDelimiterSplit") {
      return CharDelimiterPreTokenizer{single_char(json, "delimiter", where)};
    }
    if (type == "Split") {
      return split(json, where);
    }
    if (type == "Metaspace") {
      return metaspace(json, where);
    }
    if (type == "ByteLevel") {
      return byte_level(json, where);
    }
    refuse_component(origin_, "pre_tokenizer", type);
  }

  std::string origin_;
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace

std::vector<PreTokenizerStep> parse_pre_tokenizer(const Json& json, const std::string& origin) {
  PreTokenizerReader reader(origin);
  if (!json.is_null()) {
    reader.read(json, 0);
  }
  return reader.take();
}

}  // namespace stft::tokenizer
