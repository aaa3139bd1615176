#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "base/error.h"
#include "tokenizer/assembly.h"
#include "tokenizer/components.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/tokenizer.h"

namespace stft::tokenizer {
namespace {

using io::Json;

std::optional<Side> side_of(const Json& value, std::string left, std::string right, const std::string& origin) {
  if (value.is_null()) {
    return std::nullopt;
  }
  if (value != left && value != right) {
    throw UserError(fmt::format("{} is {}; it must be '{}' or '{}'", origin, value.dump(), left, right));
  }
  return value == left ? Side::kLeft : Side::kRight;
}

struct ResolvedSide {
  Side side = Side::kRight;
  std::optional<std::string> warning;
};

// tokenizer_config.json's side, else that of tokenizer.json's truncation or padding, else the class's.
ResolvedSide resolved_side(const ConfigFiles& files, const Json& stages, const std::string& what, Side otherwise) {
  const std::string key = fmt::format("{}: {}_side", files.path_of("tokenizer_config.json"), what);
  const std::string section_key = fmt::format("{}: {}: direction", files.path_of("tokenizer.json"), what);
  const auto configured = side_of(member(files.tokenizer_config, what + "_side"), "left", "right", key);
  const Json& section = member(stages, what);
  const auto written =
      section.is_object() ? side_of(member(section, "direction"), "Left", "Right", section_key) : std::nullopt;
  ResolvedSide result{configured.value_or(written.value_or(otherwise)), std::nullopt};
  if (configured && written && *configured != *written) {
    const char* side = *configured == Side::kLeft ? "left" : "right";
    result.warning = fmt::format("{} is '{}', but {} is the other; '{}' counts", key, side, section_key, side);
  }
  return result;
}

TokenizerPolicy policy_of(const ConfigFiles& files, const AssembledTokenizer& assembled, const SpecialTokens& added) {
  TokenizerPolicy policy;
  policy.files = assembled.files;
  policy.tokenizer_class = assembled.chosen.name;
  policy.class_stated_by = assembled.chosen.stated_by;
  policy.before = added.prefix;
  policy.after = added.suffix;
  policy.adds_bos = assembled.tokens.is_named_in(policy.before, {"bos_token", "cls_token"});
  policy.adds_eos = assembled.tokens.is_named_in(policy.after, {"eos_token", "sep_token"});
  policy.pad_is_end = assembled.tokens.is_named_in(policy.after, {"pad_token"});
  policy.model_max_length = model_max_length(files);
  policy.max_seq_length = max_seq_length(files);
  const Side class_side = pads_left(assembled.chosen.id) ? Side::kLeft : Side::kRight;
  const ResolvedSide truncation = resolved_side(files, assembled.stages, "truncation", Side::kRight);
  const ResolvedSide padding = resolved_side(files, assembled.stages, "padding", class_side);
  policy.truncation_side = truncation.side;
  policy.padding_side = padding.side;
  policy.lower_cases =
      io::optional_bool(files.sentence_config, "do_lower_case", files.path_of("sentence_bert_config.json"))
          .value_or(false);
  if (files.has("sentence_bert_config.json")) {
    policy.files.push_back(files.path_of("sentence_bert_config.json"));
  }
  policy.warnings = assembled.warnings;
  for (const auto& warning : {truncation.warning, padding.warning}) {
    if (warning) {
      policy.warnings.push_back(*warning);
    }
  }
  return policy;
}

Normalizer normalizer_of(const AssembledTokenizer& assembled, bool do_lower_case) {
  std::vector<NormalizerStep> steps = parse_normalizer(member(assembled.stages, "normalizer"), assembled.origin);
  const bool lowers = std::any_of(steps.begin(), steps.end(), [](const NormalizerStep& step) {
    return std::holds_alternative<LowercaseNormalizer>(step);
  });
  if (do_lower_case && !lowers) {
    steps.insert(steps.begin(), LowercaseNormalizer{});
  }
  return Normalizer(std::move(steps));
}

}  // namespace

Tokenizer Tokenizer::load(const std::string& model_directory) {
  return load_from(read_config_files(model_directory), SpecialTokenUse::kAsConfigured);
}

Tokenizer Tokenizer::load_bare(const std::string& directory) {
  ConfigFiles files;
  files.directory = directory;
  if (!files.has("tokenizer.json")) {
    throw UserError(files.path_of("tokenizer.json") + " is missing");
  }
  return load_from(files, SpecialTokenUse::kNone);
}

Tokenizer Tokenizer::load_from(const ConfigFiles& files, SpecialTokenUse use) {
  const AssembledTokenizer assembled = assemble_tokenizer(files);
  const std::string& path = assembled.origin;
  const Json& stages = assembled.stages;
  PipelineParts parts;
  parts.model = parse_model(member(stages, "model"), path);
  AddedTokenList added = parse_added_tokens(member(stages, "added_tokens"), *parts.model, path);
  parts.added_tokens = std::move(added.tokens);
  if (use == SpecialTokenUse::kAsConfigured) {
    parts.post_processor = parse_post_processor(member(stages, "post_processor"), path);
  }
  TokenizerPolicy policy = policy_of(files, assembled, parts.post_processor.special_tokens());
  if (use == SpecialTokenUse::kNone && member(stages, "truncation").is_object()) {
    const std::int64_t length = io::get_int(member(stages, "truncation"), "max_length", path + ": truncation");
    if (length < 1) {
      throw UserError(fmt::format("{}: truncation: max_length is {}; it must be above 0", path, length));
    }
    policy.model_max_length = length;
  }
  for (std::vector<std::string> warnings : {model_warnings(member(stages, "model"), path), added.warnings}) {
    std::move(warnings.begin(), warnings.end(), std::back_inserter(policy.warnings));
  }
  parts.truncation_side = policy.truncation_side;
  parts.normalizer = normalizer_of(assembled, policy.lower_cases);
  parts.pre_tokenizer = PreTokenizer(parse_pre_tokenizer(member(stages, "pre_tokenizer"), path));
  try {
    return {std::make_shared<const Pipeline>(std::move(parts)), std::move(policy)};
  } catch (const UserError& error) {
    throw UserError(path + ": " + error.what());
  }
}

}  // namespace stft::tokenizer
