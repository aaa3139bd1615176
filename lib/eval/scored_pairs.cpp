#include "eval/scored_pairs.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <unordered_map>

#include "base/error.h"
#include "io/json.h"
#include "io/text_table.h"

namespace stft::eval {
namespace {

double score_of(const io::Record& record, const PairFileConfig& config) {
  const io::Json& value = io::cell(record, config.score, config.path);
  if (value.is_number()) {
    return value.get<double>();
  }
  if (!value.is_string()) {
    throw UserError(fmt::format("{}:{}: column '{}' is {}, a score must be a number", config.path, record.line,
                                config.score, io::json_type_name(value)));
  }
  const auto& text = value.get_ref<const std::string&>();
  const auto score = parse_score(text);
  if (!score) {
    throw UserError(fmt::format("{}:{}: column '{}': score '{}' is not a number", config.path, record.line,
                                config.score, text.substr(0, 100)));
  }
  return *score;
}

}  // namespace

std::optional<double> parse_score(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) {
    return std::nullopt;
  }
  text = text.substr(first, text.find_last_not_of(' ') + 1 - first);
  if (text.starts_with('+')) {
    text.remove_prefix(1);
  }
  double score = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), score);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(score)) {
    return std::nullopt;
  }
  return score;
}

ScoredPairs load_scored_pairs(const PairFileConfig& config) {
  ScoredPairs pairs;
  std::unordered_map<std::string, int64_t> positions;
  const auto position = [&](std::string_view text) {
    const auto [entry, is_new] = positions.emplace(text, static_cast<int64_t>(pairs.texts.size()));
    if (is_new) {
      pairs.texts.emplace_back(text);
    }
    return entry->second;
  };
  io::TextTable table(config.path);
  while (const auto record = table.next()) {
    pairs.first.push_back(position(io::text_cell(*record, config.sentence1, config.path)));
    pairs.second.push_back(position(io::text_cell(*record, config.sentence2, config.path)));
    pairs.scores.push_back(score_of(*record, config));
  }
  if (pairs.scores.size() < 2) {
    throw UserError(fmt::format("{}: {} pair(s), a correlation needs at least 2", config.path, pairs.scores.size()));
  }
  return pairs;
}

}  // namespace stft::eval
