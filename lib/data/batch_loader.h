// Tokenized batches of a run, made one step ahead on a thread of their own.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <vector>

#include "data/batch_maker.h"
#include "data/dataset.h"
#include "data/step_plan.h"
#include "tokenizer/tokenizer.h"

namespace stft::data {

struct LocalStep {
  int64_t epoch = 0;
  double epoch_after = 0;
  int64_t rows = 0;
  std::vector<LocalMicroBatch> micro_batches;
};

struct LoaderOptions {
  uint64_t seed = 0;
  bool shuffles = true;
  BatchOptions batch;
};

// Steps in order, from 0. Borrows the data set and the tokenizer.
class BatchLoader {
 public:
  BatchLoader(const Dataset& dataset, const tokenizer::Tokenizer& tokenizer, StepPlan plan, LoaderOptions options);

  // The next step; none after the last. Errors of the background thread surface here.
  std::optional<LocalStep> next();

 private:
  LocalStep make(int64_t index);
  LocalMicroBatch make_micro_batch(const MicroBatchRange& range) const;
  void start_next();

  BatchMaker maker_;
  int64_t dataset_rows_;
  StepPlan plan_;
  LoaderOptions options_;
  int64_t next_index_ = 0;
  int64_t order_epoch_ = -1;  // used by the making thread only
  std::vector<int64_t> order_;
  std::future<LocalStep> pending_;
};

}  // namespace stft::data
