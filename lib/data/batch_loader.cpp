#include "data/batch_loader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/rng.h"

namespace stft::data {

BatchLoader::BatchLoader(const Dataset& dataset, const tokenizer::Tokenizer& tokenizer, StepPlan plan,
                         LoaderOptions options)
    : maker_(dataset, tokenizer, options.batch),
      dataset_rows_(dataset.size()),
      plan_(plan),
      options_(std::move(options)),
      untaken_(std::max<int64_t>(plan_.total_steps() - plan_.first_step(), 0)),
      thread_([this] { run(); }) {}

BatchLoader::~BatchLoader() {
  {
    const std::scoped_lock lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BatchLoader::run() {
  for (int64_t index = plan_.first_step(); index < plan_.total_steps(); ++index) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_stopping_ || ready_.size() < kStepsAhead; });
      if (is_stopping_) {
        return;
      }
    }
    try {
      LocalStep step = make(index);
      const std::scoped_lock lock(mutex_);
      ready_.push_back(std::move(step));
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      failure_ = std::current_exception();
    }
    changed_.notify_all();
    if (failure_) {
      return;
    }
  }
}

std::optional<LocalStep> BatchLoader::next() {
  std::unique_lock lock(mutex_);
  if (untaken_ == 0) {
    return std::nullopt;
  }
  changed_.wait(lock, [this] { return !ready_.empty() || failure_; });
  if (ready_.empty()) {
    std::rethrow_exception(failure_);
  }
  LocalStep step = std::move(ready_.front());
  ready_.pop_front();
  untaken_ -= 1;
  lock.unlock();
  changed_.notify_all();
  return step;
}

size_t BatchLoader::wait_until_ahead() {
  std::unique_lock lock(mutex_);
  const auto most = std::min(kStepsAhead, static_cast<size_t>(untaken_));
  changed_.wait(lock, [&] { return ready_.size() == most || failure_; });
  return ready_.size();
}

LocalStep BatchLoader::make(int64_t index) {
  const PlannedStep planned = plan_.step(index);
  if (planned.epoch != order_epoch_) {
    order_epoch_ = planned.epoch;
    if (options_.shuffles) {
      order_ = rng::permutation(options_.seed, static_cast<uint64_t>(planned.epoch), dataset_rows_);
    } else {
      order_.resize(static_cast<size_t>(dataset_rows_));
      std::iota(order_.begin(), order_.end(), int64_t{0});
    }
  }
  LocalStep step;
  step.epoch = planned.epoch;
  step.epoch_after = planned.epoch_after;
  step.rows = planned.rows;
  step.end = planned.end;
  for (const MicroBatchRange& range : planned.micro_batches) {
    step.micro_batches.push_back(make_micro_batch(range));
    step.micro_batches.back().step_rows = planned.rows;
  }
  return step;
}

LocalMicroBatch BatchLoader::make_micro_batch(const MicroBatchRange& range) const {
  const auto first = order_.begin() + range.first;
  LocalMicroBatch batch = maker_.make(std::vector<int64_t>(first, first + range.rows));
  batch.micro_step = range.micro_step;
  return batch;
}

}  // namespace stft::data
