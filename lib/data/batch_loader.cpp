#include "data/batch_loader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/rng.h"

namespace stft::data {

BatchLoader::BatchLoader(const Dataset& dataset, const tokenizer::Tokenizer& tokenizer, StepPlan plan,
                         LoaderOptions options)
    : dataset_(dataset), tokenizer_(tokenizer), plan_(plan), options_(std::move(options)) {
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
      order_ = rng::permutation(options_.seed, static_cast<uint64_t>(planned.epoch), dataset_.size());
    } else {
      order_.resize(static_cast<size_t>(dataset_.size()));
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

void BatchLoader::add_text(TokenizedTexts& texts, std::string_view prompt, std::string_view text) const {
  std::vector<int32_t> ids;
  if (prompt.empty()) {
    ids = tokenizer_.encode_ids(text, options_.max_length);
  } else {
    ids = tokenizer_.encode_ids(std::string(prompt).append(text), options_.max_length);
  }
  texts.ids.insert(texts.ids.end(), ids.begin(), ids.end());
  texts.offsets.push_back(static_cast<int64_t>(texts.ids.size()));
}

const std::string& BatchLoader::negative_prompt(int64_t row, int64_t i) const {
  const auto& numbered = options_.numbered_negative_prompts;
  return numbered.empty() ? options_.negative_prompt
                          : numbered.at(static_cast<size_t>(dataset_.negative_column(row, i)));
}

LocalMicroBatch BatchLoader::make_micro_batch(const MicroBatchRange& range) const {
  LocalMicroBatch batch;
  batch.global_rows = range.rows;
  batch.micro_step = range.micro_step;
  batch.local = rank_rows(range.rows, options_.rank, options_.ranks);
  const auto dataset_row = [&](int64_t row) { return order_[static_cast<size_t>(range.first + row)]; };
  for (int64_t row = 0; row < range.rows; ++row) {
    batch.negatives.push_back(dataset_.negatives(dataset_row(row)));
    batch.max_negatives = std::max(batch.max_negatives, batch.negatives.back());
  }
  const auto key = [&](int64_t row, int64_t column) {
    batch.texts.rows.push_back(static_cast<uint32_t>(row));
    batch.texts.columns.push_back(static_cast<uint32_t>(column));
  };
  const int64_t end = batch.local.first + batch.local.count;
  for (int64_t column = 0; column < 2 + batch.max_negatives; ++column) {
    for (int64_t row = batch.local.first; row < end; ++row) {
      const int64_t from = dataset_row(row);
      if (column == 0) {
        add_text(batch.texts, options_.anchor_prompt, dataset_.anchor(from));
      } else if (column == 1) {
        add_text(batch.texts, options_.positive_prompt, dataset_.positive(from));
      } else if (column - 2 < batch.negatives[static_cast<size_t>(row)]) {
        add_text(batch.texts, negative_prompt(from, column - 2), dataset_.negative(from, column - 2));
      } else {
        continue;
      }
      key(row, column);
    }
  }
  if (batch.local.count == 0) {
    add_text(batch.texts, "", "");
    key(range.rows, 0);
  }
  return batch;
}

}  // namespace stft::data
