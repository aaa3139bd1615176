#include "train/loss_evaluator.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/clock.h"
#include "train/batch_loss.h"
#include "train/batch_options.h"

namespace stft::train {

LossEvaluator::Set::Set(data::Dataset rows, const tokenizer::Tokenizer& tokenizer, data::BatchOptions options)
    : dataset(std::move(rows)), maker(dataset, tokenizer, std::move(options)) {}

LossEvaluator::LossEvaluator(const std::vector<data::DatasetConfig>& sets, const model::SentenceModel& model,
                             const tokenizer::Tokenizer& tokenizer, LossEvaluatorOptions options)
    : options_(std::move(options)) {
  for (const data::DatasetConfig& config : sets) {
    sets_.emplace_back(data::Dataset::load(config), tokenizer, batch_options(config, model));
    const int64_t rows = sets_.back().dataset.size();
    for (int64_t first = 0; first < rows; first += options_.block_rows) {
      blocks_.push_back({sets_.size() - 1, first, std::min(options_.block_rows, rows - first)});
    }
  }
}

eval::DataNotes LossEvaluator::notes() const {
  eval::DataNotes notes;
  for (const Set& set : sets_) {
    if (!set.dataset.ignored_columns().empty()) {
      notes.infos.push_back(fmt::format("data '{}': columns that are not mapped are ignored: {}", set.dataset.name(),
                                        fmt::join(set.dataset.ignored_columns(), ", ")));
    }
  }
  return notes;
}

double LossEvaluator::block_loss(const Block& block, const eval::Embedder& embedder) const {
  const Set& set = sets_[block.set];
  std::vector<int64_t> rows(static_cast<size_t>(block.rows));
  std::iota(rows.begin(), rows.end(), block.first);
  const auto batch = set.maker.make(rows);
  const auto embeddings = embedder.embed_ids(batch.texts.ids, batch.texts.offsets, batch.texts.prompt_lengths);
  return local_loss(options_.loss, batch, embeddings).item<double>();
}

std::optional<eval::EvaluationResult> LossEvaluator::evaluate(const eval::Embedder& embedder, dist::ProcessGroup& world,
                                                              eval::CorpusCache&, eval::Interrupt& interrupt) const {
  const at::NoGradGuard no_grad;
  const double start = monotonic_seconds();
  auto losses = at::zeros({static_cast<int64_t>(blocks_.size())}, at::kDouble);
  auto* const values = losses.data_ptr<double>();
  for (auto i = static_cast<size_t>(world.rank()); i < blocks_.size() && !interrupt.requested();
       i += static_cast<size_t>(world.size())) {
    values[i] = block_loss(blocks_[i], embedder);
  }
  if (interrupt.agree(world)) {
    return std::nullopt;
  }
  world.all_reduce_sum(losses).wait();  // every block has one rank's value and the others' zeros
  eval::EvaluationResult result = combine({values, blocks_.size()});
  result.seconds = monotonic_seconds() - start;
  return result;
}

eval::EvaluationResult LossEvaluator::combine(std::span<const double> block_losses) const {
  std::vector<double> sums(sets_.size(), 0.0);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    sums[blocks_[i].set] += block_losses[i] * static_cast<double>(blocks_[i].rows);
  }
  eval::EvaluationResult result;
  result.name = name_;
  result.primary = "eval_loss";
  eval::NamedValues of_sets;
  double total = 0;
  for (size_t s = 0; s < sets_.size(); ++s) {
    const int64_t rows = sets_[s].dataset.size();
    const double loss = sums[s] / static_cast<double>(rows);
    of_sets.emplace_back(sets_[s].dataset.name(), loss);
    total += sums[s];
    result.rows += rows;
  }
  total /= static_cast<double>(result.rows);
  result.values = {{"eval_loss", total}};
  result.shown = {{"loss", total}};
  for (const auto& [set, loss] : of_sets) {
    result.values.emplace_back("eval_" + set + "_loss", loss);
    if (sets_.size() > 1) {
      result.shown.emplace_back(set, loss);
    }
  }
  if (!std::isfinite(total)) {
    result.warnings.push_back(fmt::format("the evaluation loss is {}", total));
  }
  return result;
}

}  // namespace stft::train
