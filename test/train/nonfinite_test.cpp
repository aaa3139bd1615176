// train.on_nonfinite: a step whose loss or norm is not finite ends the run on all ranks, or is skipped by all ranks.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "io/temporary_directory.h"
#include "support/rank_messages.h"
#include "train/checkpoint_run.h"

using namespace stft;

namespace {

constexpr size_t kParameter = 4;  // a matrix of more rows than ranks

struct Injection {
  int64_t step = 3;            // that sees a NaN
  int64_t stops_after = 1000;  // the step after which the run is asked to stop
};

// The last value of the parameter, where this rank has it.
void set_last_value(train::Run& run, float value) {
  const at::NoGradGuard no_grad;
  const auto local = run.engine->local_parameters().at(kParameter);
  if (local.layout.own_rows > 0 && local.layout.first_row + local.layout.own_rows == local.layout.rows) {
    local.value[local.value.numel() - 1].fill_(value);
  }
}

std::vector<at::Tensor> local_values(train::Run& run) {
  std::vector<at::Tensor> values;
  for (const auto& local : run.engine->local_parameters()) {
    values.push_back(local.value.clone());
  }
  return values;
}

bool are_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& left, const at::Tensor& right) { return at::equal(left, right); });
}

// The run's question whether to stop comes at the start and, in every step, between backward and update, which is where
// a weight of the last rank becomes NaN for one step, and where all ranks get it back as 0.25.
class Injector {
 public:
  Injector(train::Run& run, Injection injection) : run_(run), injection_(injection) {}

  bool operator()() {
    const int64_t step = looks_++;  // under way; 0: before the first
    const bool is_last_rank = run_.mesh->world().rank() + 1 == run_.mesh->world().size();
    if (step + 1 == injection_.step && is_last_rank) {
      set_last_value(run_, std::numeric_limits<float>::quiet_NaN());
    } else if (step == injection_.step) {
      set_last_value(run_, 0.25F);
      before_ = local_values(run_);
    } else if (step == injection_.step + 1 && !are_equal(before_, local_values(run_))) {
      throw std::runtime_error("the skipped step changed a weight");
    }
    return step >= injection_.stops_after;
  }

 private:
  train::Run& run_;
  Injection injection_;
  int64_t looks_ = 0;
  std::vector<at::Tensor> before_;
};

void train_with_nan(recipe::Recipe recipe, const test::RunOptions& options, Injection injection,
                    std::unique_ptr<dist::ProcessGroup> world) {
  recipe.sharding.strategy = options.strategy;
  recipe = recipe::resolve(std::move(recipe), world->size());
  auto run = train::assemble(recipe, std::move(world));
  const auto injector = std::make_shared<Injector>(run, injection);
  train::Trainer(run, [injector] { return (*injector)(); }).train();
}

recipe::Recipe skipping_recipe(const std::string& output_dir) {
  auto recipe = test::checkpoint_recipe(output_dir);
  recipe.train.on_nonfinite = recipe::OnNonfinite::kSkip;
  return recipe;
}

void run_with_nan(const recipe::Recipe& recipe, const test::RunOptions& options, Injection injection = {}) {
  log::configure({.shows_info = false});
  test::run_ranks(options.ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    train_with_nan(recipe, options, injection, std::move(world));
  });
}

}  // namespace

TEST_CASE("stop: all ranks end before the update, with the step") {
  for (const int64_t ranks : {1, 2, 3}) {
    for (const auto strategy : {shard::Strategy::kFullShard, shard::Strategy::kNoShard}) {
      const test::TemporaryDirectory directory;
      const auto recipe = test::checkpoint_recipe(directory.path("run"));
      const auto messages = test::messages_of_ranks<SystemError>(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
        train_with_nan(recipe, {ranks, strategy}, {}, std::move(world));
      });
      for (const std::string& message : messages) {
        CHECK(message == "step 3: the loss is nan and the gradient norm nan; stopped before the update");
      }
    }
  }
}

TEST_CASE("skip: all ranks leave the weights as they are, tell the step and go on, alike at 1, 2 and 3 ranks") {
  std::vector<io::Json> expected;
  for (const int64_t ranks : {1, 2, 3}) {
    for (const auto strategy : {shard::Strategy::kFullShard, shard::Strategy::kNoShard}) {
      const test::TemporaryDirectory directory;
      auto recipe = skipping_recipe(directory.path("run"));
      recipe.optim.optim = optim::OptimizerType::kSgd;  // AdamW turns rounding noise into steps
      recipe.optim.learning_rate = 0.02;
      run_with_nan(recipe, {ranks, strategy});
      const auto skips = test::log_events(recipe.run.output_dir, "skip");
      REQUIRE(skips.size() == 1);
      CHECK(skips[0]["step"] == 3);
      CHECK(skips[0]["loss"].is_null());
      CHECK(skips[0]["grad_norm"].is_null());
      const auto steps = test::log_events(recipe.run.output_dir, "step");
      REQUIRE(steps.size() == 3);
      for (const io::Json& step : steps) {
        CHECK(step["loss"].is_number());
        CHECK(step["grad_norm"].is_number());
      }
      CHECK(steps[2]["step"] == 12);
      expected = expected.empty() ? steps : expected;
      for (size_t i = 0; i < steps.size(); ++i) {
        CHECK(steps[i]["loss"].get<double>() == Approx(expected[i]["loss"].get<double>()).epsilon(1e-6));
        CHECK(steps[i]["learning_rate"] == expected[i]["learning_rate"]);
      }
      CHECK(std::filesystem::exists(directory.path("run/final/model.safetensors")));
    }
  }
}

TEST_CASE("skip: a NaN on a rank that has no row is in the gradients only, and all ranks skip") {
  const test::TemporaryDirectory directory;
  const auto recipe = skipping_recipe(directory.path("run"));
  run_with_nan(recipe, {3, shard::Strategy::kNoShard}, {4});  // of 4 rows: 2, 2, 0
  const auto skips = test::log_events(recipe.run.output_dir, "skip");
  REQUIRE(skips.size() == 1);
  CHECK(skips[0]["step"] == 4);
  CHECK(skips[0]["loss"].is_number());
  CHECK(skips[0]["grad_norm"].is_null());
}

TEST_CASE("skip: the logged loss is the mean of the other steps; null when there is none") {
  const test::TemporaryDirectory directory;
  auto each = skipping_recipe(directory.path("each"));
  each.train.logging_steps = 1;
  run_with_nan(each, {2});
  auto together = skipping_recipe(directory.path("together"));
  together.train.logging_steps = 3;
  run_with_nan(together, {2});
  const auto singles = test::log_events(each.run.output_dir, "step");
  const auto means = test::log_events(together.run.output_dir, "step");
  CHECK(singles[2]["loss"].is_null());
  CHECK(singles[3]["loss"].is_number());
  const double mean = (singles[0]["loss"].get<double>() + singles[1]["loss"].get<double>()) / 2;
  CHECK(means[0]["loss"].get<double>() == Approx(mean).epsilon(1e-7));
  CHECK(means[0]["grad_norm"].is_null());  // of step 3 itself
  const auto history = io::read_json_file(directory.path("together/trainer_state.json"))["log_history"];
  CHECK(history[0]["loss"].is_number());
  CHECK(history[0]["grad_norm"].is_null());
}

TEST_CASE("a run that goes on after a skipped step ends as the uninterrupted one") {
  for (const int64_t step : {1, 4}) {  // after 1 the optimizer has taken no step at all
    const test::TemporaryDirectory directory;
    const auto whole = skipping_recipe(directory.path("whole"));
    run_with_nan(whole, {2}, {step});
    const auto parted = skipping_recipe(directory.path("parted"));
    run_with_nan(parted, {2}, {step, step});
    REQUIRE(test::log_events(parted.run.output_dir, "stop").at(0)["step"] == step);
    test::train_run(parted, {2, shard::Strategy::kFullShard, test::auto_resume()});
    CHECK(test::timeless_log(parted.run.output_dir) == test::timeless_log(whole.run.output_dir));
    CHECK(test::log_events(parted.run.output_dir, "skip") == test::log_events(whole.run.output_dir, "skip"));
    CHECK(io::read_text_file(directory.path("parted/final/model.safetensors")) ==
          io::read_text_file(directory.path("whole/final/model.safetensors")));
  }
}
