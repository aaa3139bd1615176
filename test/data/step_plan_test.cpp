#include "data/step_plan.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "base/error.h"

namespace stft::data {
namespace {

// The rows of each step's micro-batches.
std::vector<std::vector<int64_t>> rows_of(const StepPlan& plan) {
  std::vector<std::vector<int64_t>> rows;
  for (int64_t index = 0; index < plan.total_steps(); ++index) {
    rows.emplace_back();
    for (const MicroBatchRange& range : plan.step(index).micro_batches) rows.back().push_back(range.rows);
  }
  return rows;
}

std::vector<double> epochs_after(const StepPlan& plan) {
  std::vector<double> epochs;
  for (int64_t index = 0; index < plan.total_steps(); ++index) epochs.push_back(plan.step(index).epoch_after);
  return epochs;
}

// 10 rows in micro-batches of 4: 4, 4, 2.
StepPlanOptions ten_rows() {
  StepPlanOptions options;
  options.rows = 10;
  options.rows_per_micro_batch = 4;
  return options;
}

}  // namespace

TEST_CASE("an epoch ends with a short micro-batch, which still steps") {
  const StepPlan plan(ten_rows());
  CHECK(plan.total_steps() == 3);
  CHECK(plan.steps_per_epoch() == 3);
  CHECK(rows_of(plan) == std::vector<std::vector<int64_t>>{{4}, {4}, {2}});
  CHECK(epochs_after(plan) == std::vector<double>{0.4, 0.8, 1});
  CHECK(plan.step(2).micro_batches[0].first == 8);
  CHECK(plan.step(2).rows == 2);
}

TEST_CASE("a step at the end of an epoch may have fewer micro-batches") {
  StepPlanOptions options = ten_rows();
  options.accumulation = 2;
  options.epochs = 2;
  const StepPlan plan(options);
  CHECK(plan.steps_per_epoch() == 2);
  CHECK(rows_of(plan) == std::vector<std::vector<int64_t>>{{4, 4}, {2}, {4, 4}, {2}});
  CHECK(epochs_after(plan) == std::vector<double>{0.8, 1, 1.8, 2});
  CHECK(plan.step(0).rows == 8);
  CHECK(plan.step(1).rows == 2);
  CHECK(plan.step(1).epoch == 0);
  CHECK(plan.step(2).epoch == 1);
  CHECK(plan.step(2).micro_batches[0].first == 0);
  CHECK(plan.step(3).micro_batches[0].first == 8);
}

TEST_CASE("more accumulation than an epoch has micro-batches") {
  StepPlanOptions options = ten_rows();
  options.accumulation = 100;
  options.epochs = 3;
  CHECK(rows_of(StepPlan(options)) == std::vector<std::vector<int64_t>>{{4, 4, 2}, {4, 4, 2}, {4, 4, 2}});
}

TEST_CASE("fractional epochs round up to whole steps") {
  StepPlanOptions options = ten_rows();
  for (const auto& [epochs, steps] : std::vector<std::pair<double, int64_t>>{
           {0.01, 1}, {1.0 / 3, 1}, {0.34, 2}, {0.5, 2}, {0.99, 3}, {1, 3}, {1.5, 5}, {2.001, 7}}) {
    INFO(epochs);
    options.epochs = epochs;
    CHECK(StepPlan(options).total_steps() == steps);
  }
}

TEST_CASE("drop_last leaves the short micro-batch out, in every epoch") {
  StepPlanOptions options = ten_rows();
  options.drops_last = true;
  options.epochs = 2;
  CHECK(rows_of(StepPlan(options)) == std::vector<std::vector<int64_t>>{{4}, {4}, {4}, {4}});
  CHECK(epochs_after(StepPlan(options)) == std::vector<double>{0.5, 1, 1.5, 2});
  options.rows = 8;  // nothing is short
  CHECK(rows_of(StepPlan(options)) == std::vector<std::vector<int64_t>>{{4}, {4}, {4}, {4}});
  options.accumulation = 3;
  CHECK(rows_of(StepPlan(options)) == std::vector<std::vector<int64_t>>{{4, 4}, {4, 4}});
}

TEST_CASE("max_steps overrides the epochs, in either direction") {
  StepPlanOptions options = ten_rows();
  options.epochs = 100;
  options.max_steps = 2;
  CHECK(rows_of(StepPlan(options)) == std::vector<std::vector<int64_t>>{{4}, {4}});
  options.epochs = 0.1;
  options.max_steps = 8;
  const StepPlan plan(options);
  CHECK(rows_of(plan) == std::vector<std::vector<int64_t>>{{4}, {4}, {2}, {4}, {4}, {2}, {4}, {4}});
  CHECK(plan.step(7).epoch == 2);
  CHECK(plan.step(7).epoch_after == Approx(2.8).epsilon(1e-12));
}

TEST_CASE("nothing to train on is zero steps") {
  StepPlanOptions options = ten_rows();
  options.max_steps = 5;
  options.rows = 0;
  CHECK(StepPlan(options).total_steps() == 0);
  options.rows = 3;
  options.drops_last = true;
  CHECK(StepPlan(options).total_steps() == 0);
  options.drops_last = false;
  CHECK(StepPlan(options).total_steps() == 5);
  CHECK_THROWS_AS(StepPlan(options).step(5), InternalError);
  CHECK_THROWS_AS(StepPlan(options).step(-1), InternalError);
}

TEST_CASE("micro-steps are counted over the run without gaps, and an epoch's ranges follow each other") {
  StepPlanOptions options;
  options.rows = 37;
  options.rows_per_micro_batch = 5;
  options.epochs = 3;
  options.accumulation = GENERATE(1, 2, 3, 8, 9);
  options.drops_last = GENERATE(false, true);
  const StepPlan plan(options);
  const int64_t used = options.drops_last ? 35 : 37;
  uint64_t micro_step = 0;
  std::vector<int64_t> seen(3);
  for (int64_t index = 0; index < plan.total_steps(); ++index) {
    const PlannedStep step = plan.step(index);
    int64_t rows = 0;
    for (const MicroBatchRange& range : step.micro_batches) {
      CHECK(range.micro_step == micro_step);
      CHECK(range.first == seen.at(static_cast<size_t>(step.epoch)));
      CHECK(range.rows > 0);
      micro_step += 1;
      rows += range.rows;
      seen[static_cast<size_t>(step.epoch)] += range.rows;
    }
    CHECK(step.rows == rows);
    CHECK(step.epoch_after == Approx(static_cast<double>(step.epoch * used + seen[static_cast<size_t>(step.epoch)]) /
                                     static_cast<double>(used))
                                  .epsilon(1e-12));
  }
  CHECK(seen == std::vector<int64_t>(3, used));
  CHECK(micro_step == (options.drops_last ? 21 : 24));
}

TEST_CASE("the rows of a micro-batch go to the ranks in contiguous chunks, and a rank may get none") {
  const auto counts = [](int64_t rows, int64_t ranks) {
    std::vector<int64_t> result;
    for (int64_t rank = 0; rank < ranks; ++rank) result.push_back(rank_rows(rows, rank, ranks).count);
    return result;
  };
  CHECK(counts(4, 3) == std::vector<int64_t>{2, 2, 0});
  CHECK(counts(1, 3) == std::vector<int64_t>{1, 0, 0});
  CHECK(counts(5, 3) == std::vector<int64_t>{2, 2, 1});
  CHECK(counts(6, 3) == std::vector<int64_t>{2, 2, 2});
  CHECK(counts(5, 4) == std::vector<int64_t>{2, 2, 1, 0});
  CHECK(counts(7, 1) == std::vector<int64_t>{7});
  CHECK(counts(2, 8) == std::vector<int64_t>{1, 1, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("over all ranks every row is there once") {
  for (int64_t rows = 1; rows <= 20; ++rows) {
    for (int64_t ranks = 1; ranks <= 9; ++ranks) {
      INFO(rows << " rows, " << ranks << " ranks");
      int64_t next = 0;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const RankRows share = rank_rows(rows, rank, ranks);
        CHECK(share.chunk == (rows + ranks - 1) / ranks);
        CHECK(share.count >= 0);
        CHECK(share.count <= share.chunk);
        CHECK(share.first == next);
        next += share.count;
      }
      CHECK(next == rows);
    }
  }
}

}  // namespace stft::data

namespace stft::data {
namespace {

// A plan that goes on after each step of another one, with the same sizes, has the rest of its steps.
void check_goes_on(const StepPlanOptions& options) {
  const StepPlan whole(options);
  Position position;
  for (int64_t index = 0; index < whole.total_steps(); ++index) {
    StepPlanOptions rest_options = options;
    rest_options.start = position;
    const StepPlan rest(rest_options);
    REQUIRE(rest.total_steps() == whole.total_steps());
    for (int64_t later = index; later < whole.total_steps(); ++later) {
      const PlannedStep a = whole.step(later);
      const PlannedStep b = rest.step(later);
      REQUIRE(a.epoch == b.epoch);
      REQUIRE(a.rows == b.rows);
      REQUIRE(a.epoch_after == b.epoch_after);
      REQUIRE(a.end == b.end);
      REQUIRE(a.micro_batches.size() == b.micro_batches.size());
      for (size_t i = 0; i < a.micro_batches.size(); ++i) {
        REQUIRE(a.micro_batches[i].first == b.micro_batches[i].first);
        REQUIRE(a.micro_batches[i].micro_step == b.micro_batches[i].micro_step);
      }
    }
    position = whole.step(index).end;
  }
}

}  // namespace

TEST_CASE("a resumed plan with the same sizes has the steps of the whole one") {
  for (const int64_t accumulation : {1, 2, 3}) {
    for (const double epochs : {1.0, 2.5, 3.0}) {
      for (const bool drops_last : {false, true}) {
        for (const int64_t max_steps : {-1, 7}) {
          StepPlanOptions options = ten_rows();
          options.accumulation = accumulation;
          options.epochs = epochs;
          options.drops_last = drops_last;
          options.max_steps = max_steps;
          check_goes_on(options);
        }
      }
    }
  }
}

TEST_CASE("a resumed plan with other sizes visits the rows that are left, once, and ends where it would have ended") {
  StepPlanOptions options = ten_rows();
  options.epochs = 2;
  options.start = StepPlan(options).step(0).end;  // 4 rows of the first epoch are done
  options.rows_per_micro_batch = 5;
  const StepPlan plan(options);
  CHECK(plan.total_steps() == 1 + 2 + 2);  // 5 and 1 rows, then 5 and 5
  std::vector<int64_t> firsts;
  int64_t rows = 0;
  for (int64_t index = 1; index < plan.total_steps(); ++index) {
    firsts.push_back(plan.step(index).micro_batches.front().first);
    rows += plan.step(index).rows;
  }
  CHECK(firsts == std::vector<int64_t>{4, 9, 0, 5});
  CHECK(rows == 16);
  CHECK(plan.step(4).end == Position{5, 2, 0, 5});
  options.start = {9, 2, 0, 9};  // past the end: nothing is left
  CHECK(StepPlan(options).total_steps() == 9);
}

}  // namespace stft::data
