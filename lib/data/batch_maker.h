// From rows of a data set to token ids.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/prompt.h"
#include "data/step_plan.h"
#include "tokenizer/tokenizer.h"

namespace stft::data {

// Texts as token ids: text i is ids[offsets[i] .. offsets[i + 1]).
struct TokenizedTexts {
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets{0};
  std::vector<uint32_t> rows;           // of the global micro-batch
  std::vector<uint32_t> columns;        // 0 anchor, 1 positive, 2.. negatives; or 0 text_1, 1 text_2
  std::vector<int64_t> prompt_lengths;  // Prompt::length of the text's prompt

  int64_t size() const { return static_cast<int64_t>(rows.size()); }
};

// This rank's share of a global micro-batch. Texts come column by column: the anchors of the rank's rows, their
// positives, then the first negatives of the rows that have one, and so on. A rank without rows gets one text (the
// empty one, for a forward pass that counts nothing) and local.count 0.
struct LocalMicroBatch {
  TokenizedTexts texts;
  RankRows local;  // this rank's rows
  int64_t global_rows = 0;
  int64_t step_rows = 0;  // of the whole step
  uint64_t micro_step = 0;
  std::vector<int64_t> negatives;  // of every row of the global micro-batch
  int64_t max_negatives = 0;       // of them
  std::vector<float> scores;       // of every row of the global micro-batch; empty: the data set has none
};

struct BatchOptions {
  int64_t rank = 0;
  int64_t ranks = 1;
  int64_t max_length = 0;  // tokens, special ones included
  // Put before the text.
  std::array<std::string, 2> prompts;                  // of columns 0 and 1
  std::string negative_prompt;                         // of every negative, unless
  std::vector<std::string> numbered_negative_prompts;  // not empty: by Dataset::negative_column
};

// Borrows the data set and the tokenizer. Immutable, so that threads may share it.
class BatchMaker {
 public:
  BatchMaker(const Dataset& dataset, const tokenizer::Tokenizer& tokenizer, BatchOptions options);

  // The rank's share of the global micro-batch that holds these rows of the data set, in this order. It is a step of
  // its own: step_rows is global_rows, micro_step 0.
  LocalMicroBatch make(const std::vector<int64_t>& dataset_rows) const;

 private:
  const Prompt& prompt(int64_t row, int64_t column) const;
  void add_text(TokenizedTexts& texts, const Prompt& prompt, std::string_view text) const;

  const Dataset& dataset_;
  const tokenizer::Tokenizer& tokenizer_;
  BatchOptions options_;
  std::array<Prompt, 2> prompts_;  // of options_, measured
  Prompt negative_prompt_;
  std::vector<Prompt> numbered_negative_prompts_;
};

}  // namespace stft::data
