// Tokenized batches of a run, made one step ahead on a thread of their own.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/step_plan.h"
#include "tokenizer/tokenizer.h"

namespace stft::data {

// Texts as token ids: text i is ids[offsets[i] .. offsets[i + 1]).
struct TokenizedTexts {
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets{0};
  std::vector<uint32_t> rows;     // of the global micro-batch
  std::vector<uint32_t> columns;  // 0 anchor, 1 positive, 2.. negatives

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
};

struct LocalStep {
  int64_t epoch = 0;
  double epoch_after = 0;
  int64_t rows = 0;
  std::vector<LocalMicroBatch> micro_batches;
};

struct LoaderOptions {
  uint64_t seed = 0;
  bool shuffles = true;
  int64_t rank = 0;
  int64_t ranks = 1;
  int64_t max_length = 0;  // tokens, special ones included
  // Put before the text.
  std::string anchor_prompt, positive_prompt;
  std::string negative_prompt;                         // of every negative, unless
  std::vector<std::string> numbered_negative_prompts;  // not empty: by Dataset::negative_column
};

// Steps in order, from 0. Borrows the data set and the tokenizer.
class BatchLoader {
 public:
  BatchLoader(const Dataset& dataset, const tokenizer::Tokenizer& tokenizer, StepPlan plan, LoaderOptions options);

  // The next step; none after the last. Errors of the background thread surface here.
  std::optional<LocalStep> next();

 private:
  LocalStep make(int64_t index);
  const std::string& negative_prompt(int64_t row, int64_t i) const;
  LocalMicroBatch make_micro_batch(const MicroBatchRange& range) const;
  void add_text(TokenizedTexts& texts, std::string_view prompt, std::string_view text) const;
  void start_next();

  const Dataset& dataset_;
  const tokenizer::Tokenizer& tokenizer_;
  StepPlan plan_;
  LoaderOptions options_;
  int64_t next_index_ = 0;
  int64_t order_epoch_ = -1;  // used by the making thread only
  std::vector<int64_t> order_;
  std::future<LocalStep> pending_;
};

}  // namespace stft::data
