#include "data/batch_loader.h"

#include <numeric>
#include <utility>

#include "base/rng.h"

namespace stft::data {

BatchLoader::BatchLoader(const Dataset& dataset, const tokenizer::Tokenizer& tokenizer, StepPlan plan,
                         LoaderOptions options)
    : maker_(dataset, tokenizer, options.batch),
      dataset_rows_(dataset.size()),
      plan_(plan),
      options_(std::move(options)) {
  start_next();
}

void BatchLoader::start_next() {
  if (next_index_ < plan_.total_steps()) {
    pending_ = std::async(std::launch::async, [this, index = next_index_] { return make(index); });
    next_index_ += 1;
  }
}

std::optional<LocalStep> BatchLoader::next() {
  if (!pending_.valid()) {
    return std::nullopt;
  }
  LocalStep step = pending_.get();
  start_next();
  return step;
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
