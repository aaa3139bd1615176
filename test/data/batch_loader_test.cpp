#include "data/batch_loader.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <utility>

#include "base/rng.h"
#include "io/temporary_directory.h"

namespace stft::data {
namespace {

constexpr uint64_t kSeed = 42;
constexpr int64_t kMaxLength = 12;

using Ids = std::vector<int32_t>;
using Texts = std::map<std::pair<int64_t, int64_t>, Ids>;  // (row, column) of a global micro-batch -> token ids

const tokenizer::Tokenizer& tiny_tokenizer() {
  static const tokenizer::Tokenizer loaded =
      tokenizer::Tokenizer::load(std::string(STFT_SOURCE_DIR) + "/test/golden/tiny_bert");
  return loaded;
}

// 11 rows of different texts with 0 to 3 negatives.
Dataset ragged_dataset() {
  std::string lines;
  for (int row = 0; row < 11; ++row) {
    const std::string number = std::to_string(row);
    std::string negatives;
    for (int i = 0; i < row % 4; ++i) {
      negatives += (i == 0 ? "\"" : ", \"") + std::string("no ") + number + " and " + std::to_string(i) + "\"";
    }
    lines += "{\"a\": \"the anchor " + number + "\", \"p\": \"flowers " + number + "\", \"n\": [" + negatives + "]}\n";
  }
  const test::TemporaryDirectory directory;
  DatasetConfig config;
  config.paths = {directory.write("rows.jsonl", lines)};
  config.columns.anchor = "a";
  config.columns.positive = "p";
  config.columns.negative = "n";
  return Dataset::load(config);
}

struct Setting {
  int64_t rows_per_micro_batch = 4;
  int64_t accumulation = 2;
  double epochs = 2;
  bool shuffles = true;
  std::string anchor_prompt, positive_prompt, negative_prompt;
  std::vector<std::string> numbered_negative_prompts;

  std::string prompt_of_negative(int64_t i) const {
    return numbered_negative_prompts.empty() ? negative_prompt : numbered_negative_prompts[static_cast<size_t>(i)];
  }
};

StepPlan plan_of(const Dataset& dataset, const Setting& setting) {
  StepPlanOptions options;
  options.rows = dataset.size();
  options.rows_per_micro_batch = setting.rows_per_micro_batch;
  options.accumulation = setting.accumulation;
  options.epochs = setting.epochs;
  return StepPlan(options);
}

std::vector<LocalStep> load(const Dataset& dataset, const Setting& setting, int64_t rank, int64_t ranks) {
  LoaderOptions options;
  options.seed = kSeed;
  options.shuffles = setting.shuffles;
  options.batch.rank = rank;
  options.batch.ranks = ranks;
  options.batch.max_length = kMaxLength;
  options.batch.prompts = {setting.anchor_prompt, setting.positive_prompt};
  options.batch.negative_prompt = setting.negative_prompt;
  options.batch.numbered_negative_prompts = setting.numbered_negative_prompts;
  BatchLoader loader(dataset, tiny_tokenizer(), plan_of(dataset, setting), options);
  std::vector<LocalStep> steps;
  while (auto step = loader.next()) steps.push_back(std::move(*step));
  CHECK_FALSE(loader.next().has_value());
  return steps;
}

Ids ids_of(const TokenizedTexts& texts, int64_t i) {
  const auto at = [&](int64_t text) { return texts.ids.begin() + texts.offsets[static_cast<size_t>(text)]; };
  return {at(i), at(i + 1)};
}

Ids encoded(const std::string& prompt, std::string_view text) {
  return tiny_tokenizer().encode_ids(prompt + std::string(text), kMaxLength);
}

// What the micro-batch must hold, from the data set and the order alone.
Texts expected_texts(const Dataset& dataset, const std::vector<int64_t>& order, const MicroBatchRange& range,
                     const Setting& setting) {
  Texts texts;
  for (int64_t row = 0; row < range.rows; ++row) {
    const int64_t from = order[static_cast<size_t>(range.first + row)];
    texts[{row, 0}] = encoded(setting.anchor_prompt, dataset.text(from, 0));
    texts[{row, 1}] = encoded(setting.positive_prompt, dataset.text(from, 1));
    for (int64_t i = 0; i < dataset.negatives(from); ++i) {
      texts[{row, 2 + i}] = encoded(setting.prompt_of_negative(i), dataset.text(from, 2 + i));
    }
  }
  return texts;
}

// Adds a rank's texts; no text may be there already. Checks that they are in column order, then row order.
void add_texts(Texts& all, const LocalMicroBatch& batch) {
  std::pair<uint32_t, uint32_t> last{0, 0};
  REQUIRE(batch.texts.offsets.size() == batch.texts.rows.size() + 1);
  REQUIRE(batch.texts.columns.size() == batch.texts.rows.size());
  REQUIRE(batch.texts.offsets.back() == static_cast<int64_t>(batch.texts.ids.size()));
  for (int64_t i = 0; i < batch.texts.size(); ++i) {
    const uint32_t row = batch.texts.rows[static_cast<size_t>(i)];
    const uint32_t column = batch.texts.columns[static_cast<size_t>(i)];
    CHECK((i == 0 || last < std::pair(column, row)));
    last = {column, row};
    CHECK(row >= batch.local.first);
    CHECK(row < batch.local.first + batch.local.count);
    CHECK(all.emplace(std::pair(row, column), ids_of(batch.texts, i)).second);
  }
}

std::vector<int64_t> file_order(int64_t rows) {
  std::vector<int64_t> order;
  for (int64_t row = 0; row < rows; ++row) order.push_back(row);
  return order;
}

// All ranks' texts of every micro-batch, each checked against the data set in the order it must have.
void check_run(const Dataset& dataset, const Setting& setting, int64_t ranks) {
  const StepPlan plan = plan_of(dataset, setting);
  std::vector<std::vector<LocalStep>> by_rank;
  for (int64_t rank = 0; rank < ranks; ++rank) by_rank.push_back(load(dataset, setting, rank, ranks));
  for (const auto& steps : by_rank) REQUIRE(static_cast<int64_t>(steps.size()) == plan.total_steps());
  for (int64_t index = 0; index < plan.total_steps(); ++index) {
    const PlannedStep planned = plan.step(index);
    const auto order = setting.shuffles ? rng::permutation(kSeed, static_cast<uint64_t>(planned.epoch), dataset.size())
                                        : file_order(dataset.size());
    for (size_t micro = 0; micro < planned.micro_batches.size(); ++micro) {
      const MicroBatchRange& range = planned.micro_batches[micro];
      INFO("step " << index << ", micro-batch " << micro);
      Texts all;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const LocalStep& step = by_rank[static_cast<size_t>(rank)][static_cast<size_t>(index)];
        CHECK(step.epoch == planned.epoch);
        CHECK(step.rows == planned.rows);
        CHECK(step.epoch_after == planned.epoch_after);
        REQUIRE(step.micro_batches.size() == planned.micro_batches.size());
        const LocalMicroBatch& batch = step.micro_batches[micro];
        CHECK(batch.global_rows == range.rows);
        CHECK(batch.step_rows == planned.rows);
        CHECK(batch.micro_step == range.micro_step);
        CHECK(batch.local.count == rank_rows(range.rows, rank, ranks).count);
        if (batch.local.count > 0) add_texts(all, batch);
      }
      CHECK((all == expected_texts(dataset, order, range, setting)));
    }
  }
}

TEST_CASE("the ranks together see the permutation's rows in order, each text once") {
  const int64_t ranks = GENERATE(1, 2, 3, 5);
  Setting setting;
  setting.accumulation = GENERATE(1, 2);
  check_run(ragged_dataset(), setting, ranks);
}

TEST_CASE("without shuffling the order is the file's, in every epoch") {
  const int64_t ranks = GENERATE(1, 3);
  Setting setting;
  setting.shuffles = false;
  check_run(ragged_dataset(), setting, ranks);
}

TEST_CASE("the ragged negatives of all rows are known to every rank") {
  const Dataset dataset = ragged_dataset();
  Setting setting;
  setting.shuffles = false;
  setting.accumulation = 1;
  const auto steps = load(dataset, setting, 2, 3);
  CHECK(steps.at(0).micro_batches.at(0).negatives == std::vector<int64_t>{0, 1, 2, 3});
  CHECK(steps.at(0).micro_batches.at(0).max_negatives == 3);
  CHECK(steps.at(2).micro_batches.at(0).negatives == std::vector<int64_t>{0, 1, 2});
  CHECK(steps.at(2).micro_batches.at(0).max_negatives == 2);
}

TEST_CASE("a rank without rows has one text to keep it busy, the empty one") {
  const Dataset dataset = ragged_dataset();
  Setting setting;  // 4 rows over 3 ranks: 2, 2, 0
  setting.anchor_prompt = "with the prompt ";
  const LocalMicroBatch batch = load(dataset, setting, 2, 3).at(0).micro_batches.at(0);
  CHECK(batch.local.count == 0);
  CHECK(batch.global_rows == 4);
  REQUIRE(batch.texts.size() == 1);
  CHECK(ids_of(batch.texts, 0) == encoded("", ""));
  CHECK(batch.texts.rows[0] >= 4);  // no dropout key of a real text
}

TEST_CASE("prompts stand before the texts of their own role, and count for the length") {
  const Dataset dataset = ragged_dataset();
  Setting setting;
  setting.anchor_prompt = "small flowers: ";
  setting.positive_prompt = "person ";
  check_run(dataset, setting, 2);
  setting.negative_prompt = "states ";
  check_run(dataset, setting, 2);
  setting.numbered_negative_prompts = {"", "north ", "usually "};
  check_run(dataset, setting, 2);
  setting.anchor_prompt = "one two three four five six seven eight nine ten ";
  const auto steps = load(dataset, setting, 0, 1);
  const TokenizedTexts& texts = steps.at(0).micro_batches.at(0).texts;
  CHECK(ids_of(texts, 0).size() == kMaxLength);
  CHECK(ids_of(texts, 0) == ids_of(texts, 1));  // nothing of the anchors is left
  CHECK(ids_of(texts, 4) != ids_of(texts, 5));
}

TEST_CASE("an epoch has every row once, and the next one another order") {
  const Dataset dataset = ragged_dataset();
  Setting setting;
  setting.accumulation = 1;
  std::vector<std::vector<Ids>> anchors(2);
  for (const LocalStep& step : load(dataset, setting, 0, 1)) {
    for (const LocalMicroBatch& batch : step.micro_batches) {
      for (int64_t i = 0; i < batch.local.count; ++i) {
        anchors.at(static_cast<size_t>(step.epoch)).push_back(ids_of(batch.texts, i));
      }
    }
  }
  CHECK(anchors[0] != anchors[1]);
  for (const auto& epoch : anchors) {
    CHECK(epoch.size() == 11);
    CHECK(std::set<Ids>(epoch.begin(), epoch.end()).size() == 11);
  }
}

// 5 rows of two texts, scored by their number.
Dataset scored_dataset() {
  std::string lines = "a,b,s\n";
  for (int row = 0; row < 5; ++row) {
    lines += "the person " + std::to_string(row) + ",flowers " + std::to_string(row) + ",\"0." + std::to_string(row) +
             "\"\n";
  }
  const test::TemporaryDirectory directory;
  DatasetConfig config;
  config.paths = {directory.write("rows.csv", lines)};
  config.columns.text_1 = "a";
  config.columns.text_2 = "b";
  config.columns.score = "s";
  return Dataset::load(config);
}

TEST_CASE("every rank knows the scores of all rows, in the order of the rows") {
  const Dataset dataset = scored_dataset();
  check_run(dataset, Setting{}, 3);
  Setting setting;
  setting.accumulation = 1;
  setting.epochs = 1;
  const auto order = rng::permutation(kSeed, 0, dataset.size());
  for (const int64_t rank : {0, 1, 2}) {
    const auto steps = load(dataset, setting, rank, 3);
    REQUIRE(steps.size() == 2);
    const LocalMicroBatch& batch = steps.at(0).micro_batches.at(0);
    REQUIRE(batch.scores.size() == 4);
    for (size_t row = 0; row < 4; ++row) CHECK(batch.scores[row] == dataset.score(order[row]));
    CHECK(steps.at(1).micro_batches.at(0).scores == std::vector<float>{dataset.score(order[4])});
  }
  CHECK(load(ragged_dataset(), setting, 0, 1).at(0).micro_batches.at(0).scores.empty());
}

TEST_CASE("a batch of given rows is whole on one rank and a step of its own") {
  const Dataset dataset = scored_dataset();
  BatchOptions options;
  options.max_length = kMaxLength;
  options.prompts = {"first ", "second "};
  const LocalMicroBatch batch = BatchMaker(dataset, tiny_tokenizer(), options).make({3, 1});
  CHECK(batch.global_rows == 2);
  CHECK(batch.step_rows == 2);
  CHECK(batch.local.count == 2);
  CHECK(batch.scores == std::vector<float>{0.3F, 0.1F});
  REQUIRE(batch.texts.size() == 4);
  CHECK(ids_of(batch.texts, 0) == encoded("first ", "the person 3"));
  CHECK(ids_of(batch.texts, 1) == encoded("first ", "the person 1"));
  CHECK(ids_of(batch.texts, 3) == encoded("second ", "flowers 1"));
}

TEST_CASE("a loader with nothing to make has no step, and one that is left early ends cleanly") {
  const Dataset dataset = ragged_dataset();
  Setting setting;
  StepPlanOptions nothing;
  BatchLoader empty(dataset, tiny_tokenizer(), StepPlan(nothing), {});
  CHECK_FALSE(empty.next().has_value());
  LoaderOptions options;
  options.batch.max_length = kMaxLength;
  BatchLoader left(dataset, tiny_tokenizer(), plan_of(dataset, setting), options);
  CHECK(left.next().has_value());
}

TEST_CASE("steps are made ahead while nobody asks for them") {
  const Dataset dataset = ragged_dataset();
  Setting setting;
  LoaderOptions options;
  options.batch.max_length = kMaxLength;
  const StepPlan plan = plan_of(dataset, setting);
  const auto total = static_cast<size_t>(plan.total_steps());
  REQUIRE(total > BatchLoader::kStepsAhead);
  BatchLoader loader(dataset, tiny_tokenizer(), plan, options);
  for (size_t taken = 0; taken < total; ++taken) {
    CHECK(loader.wait_until_ahead() == std::min(BatchLoader::kStepsAhead, total - taken));
    CHECK(loader.next().has_value());
  }
  CHECK_FALSE(loader.next().has_value());
  CHECK_FALSE(loader.next().has_value());
}

}  // namespace
}  // namespace stft::data
