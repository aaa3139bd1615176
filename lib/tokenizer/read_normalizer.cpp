#include <fmt/format.h>

#include <map>
#include <utility>

#include "base/error.h"
#include "tokenizer/component_json.h"
#include "tokenizer/components.h"

namespace stft::tokenizer {
namespace {

using io::Json;

BertNormalizer bert_normalizer(const Json& json, const std::string& origin) {
  BertNormalizer step;
  step.clean_text = io::optional_bool(json, "clean_text", origin).value_or(true);
  step.handle_chinese_chars = io::optional_bool(json, "handle_chinese_chars", origin).value_or(true);
  step.lowercase = io::optional_bool(json, "lowercase", origin).value_or(true);
  step.strip_accents = io::optional_bool(json, "strip_accents", origin).value_or(step.lowercase);
  return step;
}

void check_length(const std::u32string& text, const std::string& key, const std::string& origin) {
  if (text.size() > kMaxReplacedChars) {
    throw UserError(
        fmt::format("{}: {} holds {} characters; {} are allowed", origin, key, text.size(), kMaxReplacedChars));
  }
}

ReplaceNormalizer replace_normalizer(const Json& json, const std::string& origin) {
  ReplaceNormalizer step{text_pattern(object_at(json, "pattern", origin), origin + " pattern"),
                         code_points(io::get_string(json, "content", origin))};
  check_length(step.content, "content", origin);
  return step;
}

PrependNormalizer prepend_normalizer(const Json& json, const std::string& origin) {
  PrependNormalizer step{code_points(io::get_string(json, "prepend", origin))};
  check_length(step.prefix, "prepend", origin);
  return step;
}

CharsmapNormalizer charsmap_normalizer(const Json& json, const std::string& origin) {
  const std::optional<std::string> bytes = decode_base64(io::get_string(json, "precompiled_charsmap", origin));
  if (!bytes) {
    throw UserError(origin + ": precompiled_charsmap is not base64");
  }
  try {
    return {Charsmap(*bytes)};
  } catch (const UserError& error) {
    throw UserError(origin + ": " + error.what());
  }
}

class NormalizerReader {
 public:
  explicit NormalizerReader(std::string origin) : origin_(std::move(origin)) {}

  void read(const Json& json, int depth) {
    const std::string type = io::get_string(json, "type", origin_ + ": normalizer");
    const std::string where = origin_ + ": normalizer " + type;
    if (steps_.size() == kMaxSteps) {
      throw UserError(fmt::format("{}: more than {} steps", where, kMaxSteps));
    }
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
    } else if (type == "Prepend") {
      steps_.push_back(prepend_normalizer(json, where));
    } else if (type == "Precompiled") {
      steps_.push_back(charsmap_normalizer(json, where));
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
        {"ByteLevel", ByteLevelNormalizer{}},
        {"Nmt", NmtNormalizer{}},
    };
    const auto found = known.find(type);
    if (found == known.end()) {
      refuse_component(origin_, "normalizer", type);
    }
    return found->second;
  }

  std::string origin_;
  std::vector<NormalizerStep> steps_;
};

}  // namespace

std::vector<NormalizerStep> parse_normalizer(const Json& json, const std::string& origin) {
  NormalizerReader reader(origin);
  if (!json.is_null()) {
    reader.read(json, 0);
  }
  return reader.take();
}

}  // namespace stft::tokenizer
