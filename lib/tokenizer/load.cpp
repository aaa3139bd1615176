#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "io/json.h"
#include "tokenizer/components.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/tokenizer.h"

namespace stft::tokenizer {
namespace {

using io::Json;

// Files write 1e30 where there is no limit.
constexpr double kNoRealLimit = 1e9;

struct SentenceConfig {
  std::optional<std::int64_t> max_seq_length;
  bool do_lower_case = false;
};

std::optional<Json> read_if_present(const std::string& path) {
  std::error_code unreadable;  // the read reports it
  if (std::filesystem::status(path, unreadable).type() == std::filesystem::file_type::not_found) {
    return std::nullopt;
  }
  Json json = io::read_json_file(path);
  if (!json.is_object()) {
    throw UserError(fmt::format("{}: {} instead of an object", path, io::json_type_name(json)));
  }
  return json;
}

void check_positive(std::int64_t value, const std::string& key, const std::string& path) {
  if (value <= 0) {
    throw UserError(fmt::format("{}: {} is {}; it must be above 0", path, key, value));
  }
}

std::optional<std::int64_t> read_model_max_length(const std::string& path) {
  const std::optional<Json> json = read_if_present(path);
  if (!json) {
    return std::nullopt;
  }
  const std::optional<double> value = io::optional_double(*json, "model_max_length", path);
  if (!value || *value > kNoRealLimit) {
    return std::nullopt;
  }
  const auto length = static_cast<std::int64_t>(std::max(*value, 0.0));
  check_positive(length, "model_max_length", path);
  return length;
}

SentenceConfig read_sentence_config(const std::string& path) {
  SentenceConfig config;
  if (const std::optional<Json> json = read_if_present(path)) {
    config.max_seq_length = io::optional_int(*json, "max_seq_length", path);
    config.do_lower_case = io::optional_bool(*json, "do_lower_case", path).value_or(false);
    if (config.max_seq_length) {
      check_positive(*config.max_seq_length, "max_seq_length", path);
    }
  }
  return config;
}

const Json& member(const Json& json, const std::string& key) {
  static const Json null;
  const auto found = json.find(key);
  return found == json.end() ? null : *found;
}

std::shared_ptr<const Pipeline> read_pipeline(const std::string& path, bool do_lower_case) {
  // Scores of Unigram that tie are decided by their last bits, so they have to be those that HF reads.
  const Json json = io::read_json_file(path, io::FloatReading::kSerde);
  if (!json.is_object()) {
    throw UserError(fmt::format("{}: {} instead of an object", path, io::json_type_name(json)));
  }
  PipelineParts parts;
  parts.model = parse_model(member(json, "model"), path);
  parts.added_tokens = parse_added_tokens(member(json, "added_tokens"), *parts.model, path);
  std::vector<NormalizerStep> steps = parse_normalizer(member(json, "normalizer"), path);
  const bool lowers = std::any_of(steps.begin(), steps.end(), [](const NormalizerStep& step) {
    return std::holds_alternative<LowercaseNormalizer>(step);
  });
  if (do_lower_case && !lowers) {
    steps.insert(steps.begin(), LowercaseNormalizer{});
  }
  parts.normalizer = Normalizer(std::move(steps));
  parts.pre_tokenizer = PreTokenizer(parse_pre_tokenizer(member(json, "pre_tokenizer"), path));
  parts.post_processor = parse_post_processor(member(json, "post_processor"), path);
  try {
    return std::make_shared<const Pipeline>(std::move(parts));
  } catch (const UserError& error) {
    throw UserError(path + ": " + error.what());
  }
}

}  // namespace

Tokenizer Tokenizer::load(const std::string& model_directory) {
  const std::filesystem::path directory(model_directory);
  std::error_code unreadable;
  if (!std::filesystem::is_directory(directory, unreadable)) {
    throw UserError(fmt::format("{}: not a model directory", model_directory));
  }
  const SentenceConfig sentence = read_sentence_config((directory / "sentence_bert_config.json").string());
  const auto model_max_length = read_model_max_length((directory / "tokenizer_config.json").string());
  auto pipeline = read_pipeline((directory / "tokenizer.json").string(), sentence.do_lower_case);
  return {std::move(pipeline), model_max_length, sentence.max_seq_length};
}

}  // namespace stft::tokenizer
