#include "data/batch_maker.h"

#include <algorithm>
#include <utility>

namespace stft::data {

BatchMaker::BatchMaker(const Dataset& dataset, const tokenizer::Tokenizer& tokenizer, BatchOptions options)
    : dataset_(dataset), tokenizer_(tokenizer), options_(std::move(options)) {
  const auto measured = [&](const std::string& text) { return measure_prompt(text, tokenizer_, options_.max_length); };
  for (size_t column = 0; column < prompts_.size(); ++column) {
    prompts_[column] = measured(options_.prompts[column]);
  }
  negative_prompt_ = measured(options_.negative_prompt);
  for (const std::string& text : options_.numbered_negative_prompts) {
    numbered_negative_prompts_.push_back(measured(text));
  }
}

void BatchMaker::add_text(TokenizedTexts& texts, const Prompt& prompt, std::string_view text) const {
  std::vector<int32_t> ids;
  if (prompt.text.empty()) {
    ids = tokenizer_.encode_ids(text, options_.max_length);
  } else {
    ids = tokenizer_.encode_ids(std::string(prompt.text).append(text), options_.max_length);
  }
  texts.ids.insert(texts.ids.end(), ids.begin(), ids.end());
  texts.offsets.push_back(static_cast<int64_t>(texts.ids.size()));
  texts.prompt_lengths.push_back(prompt.length);
}

const Prompt& BatchMaker::prompt(int64_t row, int64_t column) const {
  if (column < Dataset::kColumns) {
    return prompts_[static_cast<size_t>(column)];
  }
  const auto& numbered = numbered_negative_prompts_;
  return numbered.empty() ? negative_prompt_
                          : numbered.at(static_cast<size_t>(dataset_.negative_column(row, column - Dataset::kColumns)));
}

LocalMicroBatch BatchMaker::make(const std::vector<int64_t>& dataset_rows) const {
  LocalMicroBatch batch;
  batch.global_rows = static_cast<int64_t>(dataset_rows.size());
  batch.step_rows = batch.global_rows;
  batch.local = rank_rows(batch.global_rows, options_.rank, options_.ranks);
  for (const int64_t row : dataset_rows) {
    batch.negatives.push_back(dataset_.negatives(row));
    batch.max_negatives = std::max(batch.max_negatives, batch.negatives.back());
    if (dataset_.has_scores()) {
      batch.scores.push_back(dataset_.score(row));
    }
  }
  const auto key = [&](int64_t row, int64_t column) {
    batch.texts.rows.push_back(static_cast<uint32_t>(row));
    batch.texts.columns.push_back(static_cast<uint32_t>(column));
  };
  const int64_t end = batch.local.first + batch.local.count;
  for (int64_t column = 0; column < Dataset::kColumns + batch.max_negatives; ++column) {
    for (int64_t row = batch.local.first; row < end; ++row) {
      const int64_t from = dataset_rows[static_cast<size_t>(row)];
      if (column < dataset_.texts(from)) {
        add_text(batch.texts, prompt(from, column), dataset_.text(from, column));
        key(row, column);
      }
    }
  }
  if (batch.local.count == 0) {
    add_text(batch.texts, {}, "");
    key(batch.global_rows, 0);
  }
  return batch;
}

}  // namespace stft::data
