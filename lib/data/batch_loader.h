// Tokenized batches of a run, made ahead on a thread of their own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
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
  Position end;  // where the run stands after this step
  std::vector<LocalMicroBatch> micro_batches;
};

struct LoaderOptions {
  uint64_t seed = 0;
  bool shuffles = true;
  BatchOptions batch;
};

// Steps in order, from the plan's first. Borrows the data set and the tokenizer. One thread makes them for as long as
// the loader lives (what tokenizers remember of words stays with a thread) and is up to kStepsAhead steps ahead.
class BatchLoader {
 public:
  static constexpr size_t kStepsAhead = 2;

  BatchLoader(const Dataset& dataset, const tokenizer::Tokenizer& tokenizer, StepPlan plan, LoaderOptions options);
  BatchLoader(const BatchLoader&) = delete;  // the thread points to it
  BatchLoader& operator=(const BatchLoader&) = delete;
  ~BatchLoader();

  // The next step; none after the last. An error of the background thread surfaces here, at its step.
  std::optional<LocalStep> next();

  // Waits until no step can be made ahead before one is taken; the number of steps that are ready then.
  size_t wait_until_ahead();

 private:
  // Runs on the background thread, which alone touches order_ and order_epoch_.
  void run();
  LocalStep make(int64_t index);
  LocalMicroBatch make_micro_batch(const MicroBatchRange& range) const;

  BatchMaker maker_;
  int64_t dataset_rows_;
  StepPlan plan_;
  LoaderOptions options_;
  int64_t order_epoch_ = -1;
  std::vector<int64_t> order_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<LocalStep> ready_;  // this and what follows: under mutex_
  std::exception_ptr failure_;   // ends the steps, behind those that are ready
  int64_t untaken_ = 0;          // steps that next() has yet to return
  bool is_stopping_ = false;

  std::thread thread_;  // last: starts when all else is there
};

}  // namespace stft::data
