// Training against the Python peers' numbers.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <mutex>

#include "support/run_fixture.h"
#include "support/whole_gradients.h"

using namespace stft;
using test::run_ranks;

namespace {

constexpr auto kStrategies = {shard::Strategy::kFullShard, shard::Strategy::kNoShard};

struct Trace {
  std::vector<double> losses, norms, rates;
};

// Rank 0's trace of a whole run.
Trace trace_of(const recipe::Recipe& recipe, int64_t ranks, shard::Strategy strategy,
               const std::function<void(train::Run&)>& afterwards = {}) {
  Trace trace;
  run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const bool is_first = world->rank() == 0;
    auto run = test::assemble_on(std::move(world), recipe, strategy);
    auto runner = test::runner_of(*run);
    for (int64_t step = 0; auto batch = run->loader->next(); ++step) {
      const double rate = run->schedule->learning_rate(step);
      const auto result = runner.run(*batch, run->schedule->factor(step));
      if (is_first) {
        trace.losses.push_back(result.loss);
        trace.norms.push_back(result.grad_norm);
        trace.rates.push_back(rate);
      }
    }
    if (afterwards) {
      afterwards(*run);
    }
  });
  return trace;
}

void check_close(const std::vector<double>& found, const io::Json& expected, double relative) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    INFO("step " << i + 1);
    CHECK(found[i] == Approx(expected[i].get<double>()).epsilon(relative).margin(1e-12));
  }
}

// Collective: throws, since Catch's checks belong to one thread.
void check_weight_sums(train::Run& run, const io::Json& figures) {
  for (size_t i = 0; i < run.model->parameters().size(); ++i) {
    const auto whole = run.engine->gather(static_cast<int64_t>(i)).to(at::kDouble);
    const std::string& name = run.model->parameters()[i].name;
    const double expected = figures["final_weights"][name]["sum"].get<double>();
    if (std::fabs(whole.sum().item<double>() - expected) > 1e-4) {
      throw std::runtime_error("sum of " + name);
    }
  }
}

}  // namespace

TEST_CASE("gradients with 0, 1 and 2 negatives equal the peer's at 1, 2 and 3 ranks, both strategies") {  // A11, T22
  const auto figures = test::golden_json("gradients_tiny.json");
  for (const int negatives : {0, 1, 2}) {
    const std::string key = fmt::format("neg{}", negatives);
    for (const auto strategy : kStrategies) {
      for (const int64_t ranks : {1, 2, 3}) {
        INFO(key << ", ranks " << ranks << ", sharded " << (strategy == shard::Strategy::kFullShard));
        auto recipe = test::tiny_recipe();
        test::use_triplets(recipe, negatives, 12);
        recipe.train.global_batch_size = 12;
        test::WholeTensors gradients;
        double loss = 0;
        run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
          auto run = test::assemble_on(std::move(world), recipe, strategy);
          const double part = test::runner_of(*run).accumulate(*run->loader->next());
          gradients.add_gradients(*run->engine);
          const std::scoped_lock lock(gradients.mutex);
          loss += part;
        });
        CHECK(loss == Approx(figures[key]["loss"].get<double>()).epsilon(1e-6));
        const double total_norm = figures[key]["grad_norm"].get<double>();
        REQUIRE(gradients.by_name.size() == 37);
        test::check_golden_gradients(gradients.by_name, total_norm, [&key = key](const std::string& name) {
          return test::read_tensor(test::golden_path("gradients_tiny.safetensors"), key + "/" + name).view({-1});
        });
      }
    }
  }
}

TEST_CASE("gradients of the real model equal the peer's") {
  const auto figures = test::golden_json("gradients_minilm.json");
  for (const int negatives : {0, 1, 2}) {
    const auto& expected = figures[fmt::format("neg{}", negatives)];
    auto recipe = test::tiny_recipe();
    recipe.model.name_or_path = test::minilm_path();
    recipe.model.dropout = 0.0;
    test::use_triplets(recipe, negatives, 16);
    recipe.train.per_device_train_batch_size = 16;
    auto run = test::assemble_on(dist::ProcessGroup::single(), recipe, shard::Strategy::kFullShard);
    const double loss = test::runner_of(*run).accumulate(*run->loader->next());
    CHECK(loss == Approx(expected["loss"].get<double>()).epsilon(1e-5));
    const double total = expected["grad_norm"].get<double>();
    for (const auto& local : run->engine->local_parameters()) {
      const auto& figure = expected["parameters"][local.parameter->name];
      const auto gradient = local.gradient.to(at::kDouble);
      const auto index = at::arange(gradient.numel(), at::kLong);
      const auto vector = (index * 7919).remainder(1009).to(at::kDouble) / 1009.0 - 0.5;
      const double norm = figure["norm"].get<double>();
      const double scale = std::max(norm, 0.01 * total);
      INFO(local.parameter->name);
      CHECK(std::fabs(gradient.norm().item<double>() - norm) <= 1e-5 * scale);
      CHECK(std::fabs(gradient.dot(vector).item<double>() - figure["dot"].get<double>()) <=
            1e-5 * scale * vector.norm().item<double>());
    }
  }
}

TEST_CASE("20 AdamW steps of the real model give the peer's losses") {
  const auto figures = test::golden_json("adamw_losses_minilm.json");
  auto recipe = test::tiny_recipe();
  recipe.model.name_or_path = test::minilm_path();
  recipe.model.dropout = 0.0;
  recipe.train.max_steps = 20;
  recipe.train.per_device_train_batch_size = 32;
  recipe.optim = optim::OptimConfig{};
  recipe.optim.learning_rate = 2e-5;
  recipe.optim.warmup_steps = 3;
  const Trace trace = trace_of(recipe, 1, shard::Strategy::kFullShard);
  check_close(trace.losses, figures["losses"], 1e-4);
  check_close(trace.norms, figures["grad_norms"], 1e-3);
  check_close(trace.rates, figures["learning_rates"], 1e-9);
}

TEST_CASE("20 AdamW steps with weight decay give the peer's losses, at 1 and 2 ranks") {
  const auto figures = test::golden_json("adamw_losses_tiny.json");
  auto recipe = test::tiny_recipe();
  recipe.train.max_steps = 20;
  recipe.train.global_batch_size = 32;
  recipe.optim = optim::OptimConfig{};
  recipe.optim.learning_rate = 1e-3;
  recipe.optim.warmup_steps = 3;
  recipe.optim.weight_decay = 0.01;
  for (const int64_t ranks : {1, 2}) {
    const Trace trace = trace_of(recipe, ranks, shard::Strategy::kFullShard);
    check_close(trace.losses, figures["losses"], 1e-4);
  }
}

TEST_CASE("20 steps of CoSENTLoss give the peer's losses, norms and weights: SGD at 1 and 2 ranks, AdamW") {
  const auto golden = test::golden_json("cosent_tiny.json");
  auto recipe = test::tiny_recipe();
  test::use_scored(recipe);
  recipe.train.max_steps = 20;
  recipe.train.global_batch_size = 32;
  recipe.optim.learning_rate = 0.005;
  const auto& sgd = golden["sgd"];
  for (const auto strategy : kStrategies) {
    for (const int64_t ranks : {1, 2}) {
      const Trace trace = trace_of(recipe, ranks, strategy, [&](train::Run& run) { check_weight_sums(run, sgd); });
      check_close(trace.losses, sgd["losses_float64"], 1e-5);
      check_close(trace.norms, sgd["grad_norms_float64"], 1e-4);
    }
  }
  recipe.optim = optim::OptimConfig{};
  recipe.optim.learning_rate = 1e-3;
  recipe.optim.warmup_steps = 3;
  recipe.optim.weight_decay = 0.01;
  const Trace trace = trace_of(recipe, 1, shard::Strategy::kFullShard);
  check_close(trace.losses, golden["adamw"]["losses"], 1e-4);
  check_close(trace.norms, golden["adamw"]["grad_norms"], 1e-3);
}

TEST_CASE("5 steps of SGD give the peer's losses, norms and weights") {
  const auto figures = test::golden_json("sgd_tiny.json");
  auto recipe = test::tiny_recipe();
  recipe.train.max_steps = 5;
  recipe.train.global_batch_size = 32;
  for (const auto strategy : kStrategies) {
    for (const int64_t ranks : {1, 2}) {
      const Trace trace = trace_of(recipe, ranks, strategy, [&](train::Run& run) { check_weight_sums(run, figures); });
      check_close(trace.losses, figures["losses_float64"], 1e-5);
      check_close(trace.norms, figures["grad_norms_float64"], 1e-4);
    }
  }
}

TEST_CASE("5 steps of SGD with learning_rate_mapping give the peer's losses and weights") {
  const auto figures = test::golden_json("learning_rates_tiny.json");
  auto recipe = test::tiny_recipe();
  recipe.train.max_steps = 5;
  recipe.train.global_batch_size = 32;
  recipe.optim.lr_scheduler_type = optim::ScheduleType::kLinear;
  recipe.optim.warmup_steps = 1;
  recipe.optim.weight_decay = 0.01;
  recipe.optim.learning_rate_mapping = {
      {"attention", 0.05}, {R"(^model\.0\.model\.encoder\.layer\.1\.)", 0.02}, {"query|LayerNorm", 0.2}};
  for (const int64_t ranks : {1, 2}) {
    const Trace trace =
        trace_of(recipe, ranks, shard::Strategy::kFullShard, [&](train::Run& run) { check_weight_sums(run, figures); });
    check_close(trace.losses, figures["losses_float64"], 1e-5);
    check_close(trace.norms, figures["grad_norms_float64"], 1e-4);
    check_close(trace.rates, figures["learning_rates"], 1e-9);
  }
}
