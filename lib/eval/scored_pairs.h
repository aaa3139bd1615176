// Pairs of sentences with a score each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/eval_config.h"

namespace stft::eval {

struct ScoredPairs {
  std::vector<std::string> texts;  // every distinct sentence once, in order of appearance
  std::vector<int64_t> first;      // pair -> position in `texts`
  std::vector<int64_t> second;
  std::vector<double> scores;
};

// Reads a .jsonl, .csv or .tsv file; a score is a number, or in csv and tsv the text of one. UserError naming path:line
// for a missing column, a score that is none, and the faults of io::TextTable; naming the path when there are fewer
// than two pairs, which have no correlation.
ScoredPairs load_scored_pairs(const PairFileConfig& config);

// The finite number that `text` is, blanks around it allowed.
std::optional<double> parse_score(std::string_view text);

}  // namespace stft::eval
