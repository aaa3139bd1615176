// Optimizers in whole trainings: 8-bit moments beside fp32 ones, learning rates by name.
#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <mutex>

#include "base/error.h"
#include "checkpoint/dcp_reader.h"
#include "io/temporary_directory.h"
#include "support/run_fixture.h"
#include "support/same_training.h"
#include "train/checkpoint_run.h"
#include "train/learning_rates.h"
#include "train/memory_report.h"

using namespace stft;
using test::run_ranks;

namespace {

struct Outcome : test::Trained {
  train::IntegerLists planned, measured;
};

Outcome outcome_of(const recipe::Recipe& recipe, int64_t ranks,
                   shard::Strategy strategy = shard::Strategy::kFullShard) {
  Outcome outcome;
  run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const bool is_first = world->rank() == 0;
    auto run = test::assemble_on(std::move(world), recipe, strategy);
    auto planned = train::planned_memory(*run);
    auto runner = test::runner_of(*run);
    auto trained = test::train_all(*run, runner);
    auto measured = train::measured_memory(*run);
    if (is_first) {
      static_cast<test::Trained&>(outcome) = std::move(trained);
      outcome.planned = std::move(planned);
      outcome.measured = std::move(measured);
    }
  });
  return outcome;
}

std::vector<int64_t> optimizer_bytes(const train::IntegerLists& lists) {
  for (const auto& [name, by_rank] : lists) {
    if (name == "optimizer_bytes") {
      return by_rank;
    }
  }
  return {};
}

// 20 steps with a constant rate in which the loss falls.
recipe::Recipe twenty_steps(optim::OptimizerType type) {
  auto recipe = test::eight_bit_recipe("");
  recipe.train.max_steps = 20;
  recipe.model.dropout = 0.0;
  recipe.optim.optim = type;
  return recipe;
}

// Relative.
double largest_difference(const std::vector<double>& found, const std::vector<double>& expected) {
  double largest = found.size() == expected.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    largest = std::max(largest, std::fabs(found[i] - expected[i]) / expected[i]);
  }
  return largest;
}

recipe::Recipe lora_recipe() {
  auto recipe = test::tiny_recipe();
  recipe.adapter = peft::AdapterConfig{};
  recipe.adapter->r = 4;
  recipe.adapter->target_modules = {"query", "value"};
  recipe.adapter->target_modules_is_list = true;
  return recipe;
}

std::string refusal(const recipe::Recipe& recipe) {
  return test::message_of<UserError>([&] { outcome_of(recipe, 1); });
}

}  // namespace

TEST_CASE("20 steps with 8-bit moments lose what 20 steps of AdamW lose, to 1 part in 1000") {
  const Outcome eight = outcome_of(twenty_steps(optim::OptimizerType::kAdamW8bit), 1);
  const Outcome exact = outcome_of(twenty_steps(optim::OptimizerType::kAdamW), 1);
  CHECK(exact.losses.back() < 0.8 * exact.losses.front());
  const double difference = largest_difference(eight.losses, exact.losses);
  INFO("largest relative difference of a loss " << difference << "; losses " << exact.losses.front() << " to "
                                                << exact.losses.back());
  CHECK(difference < 1e-3);
  CHECK(difference > 0);
}

TEST_CASE("20 steps of the real model with 8-bit moments lose what the peer's lose with them and without") {
  auto recipe = test::tiny_recipe();
  recipe.model.name_or_path = test::minilm_path();
  recipe.model.dropout = 0.0;
  recipe.train.max_steps = 20;
  recipe.train.per_device_train_batch_size = 32;
  recipe.optim = optim::OptimConfig{};
  recipe.optim.optim = optim::OptimizerType::kAdamW8bit;
  recipe.optim.learning_rate = 2e-5;
  recipe.optim.warmup_steps = 3;
  std::vector<double> losses;
  run_ranks(1, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const auto run = test::assemble_on(std::move(world), recipe, shard::Strategy::kFullShard);
    auto runner = test::runner_of(*run);
    for (int64_t step = 0; const auto batch = run->loader->next(); ++step) {
      losses.push_back(runner.run(*batch, run->schedule->factor(step)).loss);
    }
  });
  const auto difference_to = [&](const char* golden) {
    return largest_difference(losses, test::golden_json(golden)["losses"].get<std::vector<double>>());
  };
  // Measured: 4e-5 to bitsandbytes' AdamW8bit, 1.2e-4 to AdamW.
  CHECK(difference_to("adamw_8bit_losses_minilm.json") < 1e-4);
  CHECK(difference_to("adamw_losses_minilm.json") < 5e-4);
  CHECK(difference_to("adamw_losses_minilm.json") > 2e-5);  // the moments are in 8 bits
}

TEST_CASE("8-bit moments train alike under every strategy and place; the plan is what they take") {
  struct Way {
    int64_t ranks;
    shard::Strategy strategy;
    bool is_offloaded = false;
  };
  auto recipe = twenty_steps(optim::OptimizerType::kAdamW8bit);
  recipe.train.max_steps = 6;
  const Outcome one = outcome_of(recipe, 1);
  // word, position and type tables, 2 layers, their vectors and Dense's bias in fp32; Dense's [200, 32] in 8 bits.
  const int64_t fp32 = 500 * 32 + 64 * 32 + 2 * 32 + 2 * 32 + 2 * (4 * 32 * 33 + 64 * 33 + 32 * 65 + 4 * 32) + 200;
  CHECK(optimizer_bytes(one.measured) == std::vector<int64_t>{8 * fp32 + 200 * (2 * 32 + 8)});
  for (const auto& [ranks, strategy, is_offloaded] :
       {Way{2, shard::Strategy::kFullShard}, Way{3, shard::Strategy::kFullShard}, Way{2, shard::Strategy::kNoShard},
        Way{2, shard::Strategy::kFullShard, true}, Way{4, shard::Strategy::kHybridShard}}) {
    INFO(ranks << " ranks, strategy " << static_cast<int>(strategy) << ", offloaded " << is_offloaded);
    recipe.sharding.cpu_offload = is_offloaded;
    recipe.sharding.hybrid_shard_size = 2;
    const Outcome found = outcome_of(recipe, ranks, strategy);
    // Adam turns the rounding of gradients that are zero in exact arithmetic into steps.
    CHECK(largest_difference(found.losses, one.losses) < 1e-4);
    CHECK(optimizer_bytes(found.planned) == optimizer_bytes(found.measured));
  }
}

TEST_CASE("rates by name give the same training at 1, 2 and 3 ranks") {
  auto recipe = test::checkpoint_recipe("");
  recipe.optim.optim = optim::OptimizerType::kSgd;
  recipe.optim.learning_rate = 0.02;
  recipe.optim.learning_rate_mapping = {{"attention", 0.1}, {"^encoder\\.layer\\.1\\.", 0.005}};
  const Outcome one = outcome_of(recipe, 1);
  test::check_same_training(outcome_of(recipe, 2), one);
  test::check_same_training(outcome_of(recipe, 3), one);
  test::check_same_training(outcome_of(recipe, 2, shard::Strategy::kNoShard), one);
  auto plain = recipe;
  plain.optim.learning_rate_mapping.clear();
  CHECK(test::largest_change(outcome_of(plain, 1), one) > 1e-3);
}

TEST_CASE("a checkpoint has the parameter groups that sentence-transformers makes") {
  const test::TemporaryDirectory directory;
  auto recipe = test::tiny_recipe();
  recipe.run.output_dir = directory.path("run");
  recipe.train.max_steps = 2;
  recipe.optim.weight_decay = 0.01;
  recipe.optim.lr_scheduler_type = optim::ScheduleType::kLinear;
  recipe.optim.learning_rate_mapping = {
      {"attention", 0.05}, {R"(^model\.0\.model\.encoder\.layer\.1\.)", 0.02}, {"query|LayerNorm", 0.2}};
  recipe.train.max_steps = 4;
  test::save_every(recipe, 2, checkpoint::StateDictType::kSharded);
  REQUIRE(test::train_run(recipe, {2}) == train::Outcome::kDone);
  const auto stored = checkpoint::DcpDirectory::open(directory.path("run/checkpoint-2/optimizer_0"));
  const auto groups = test::golden_json("learning_rates_tiny.json")["parameter_groups"];
  REQUIRE(groups.size() == 8);
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::string key = "optimizer.param_groups." + std::to_string(i) + ".";
    const auto number = [&](const char* name) { return std::get<double>(stored.object(key + name).value); };
    INFO(key);
    CHECK(number("initial_lr") == groups[i]["lr"].get<double>());
    CHECK(number("lr") == Approx(groups[i]["lr"].get<double>() * 0.5));
    CHECK(number("weight_decay") == groups[i]["weight_decay"].get<double>());
    std::vector<std::string> names;
    const io::PythonValue params = stored.object(key + "params");
    for (const auto& item : std::get<io::PythonList>(params.value).items) {
      names.push_back(std::get<std::string>(item.value).substr(std::string("0.model.").size()));
    }
    std::sort(names.begin(), names.end());
    auto expected = groups[i]["params"].get<std::vector<std::string>>();
    std::erase_if(expected, [](const std::string& name) { return name.starts_with("pooler."); });  // unused here
    CHECK(names == expected);
  }
  CHECK(stored.find_object("optimizer.param_groups.8.lr") == nullptr);
}

TEST_CASE("LoRA+: lora_B by short name, and by PEFT's and the checkpoint's whole names") {
  auto recipe = lora_recipe();
  recipe.optim.learning_rate = 0;
  recipe.optim.learning_rate_mapping = {{"lora_B", 0.5}};
  recipe.train.max_steps = 2;
  const Outcome plus = outcome_of(recipe, 2);
  for (const char* pattern :
       {"^base_model\\.model\\.encoder\\.layer\\.\\d+\\..*\\.lora_B\\.default\\.weight$",
        "^model\\.0\\.model\\.encoder\\..*\\.lora_B\\.default\\.weight$", "^encoder\\..*lora_B"}) {
    INFO(pattern);
    recipe.optim.learning_rate_mapping = {{pattern, 0.5}};
    const Outcome same = outcome_of(recipe, 2);
    CHECK(test::largest_change(same, plus) == 0);
  }
  recipe.optim.learning_rate_mapping = {{"lora_B", 0.5}, {"lora_", 0.0}};  // the last one counts
  const Outcome still = outcome_of(recipe, 2);
  CHECK(test::largest_change(plus, still) > 1e-3);
  recipe.optim.learning_rate_mapping.clear();
  CHECK(test::largest_change(outcome_of(recipe, 2), still) == 0);
}

TEST_CASE("the parameters with rates of their own are told") {
  auto recipe = lora_recipe();
  recipe.optim.learning_rate_mapping = {{"lora_", 2e-4}, {"value.*lora_B", 0.5}};
  run_ranks(1, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const auto run = test::assemble_on(std::move(world), recipe, shard::Strategy::kFullShard);
    const auto lines = train::describe_learning_rates(*run->model);
    REQUIRE(lines.size() == 2);
    CHECK(lines[0] ==
          "learning rate 0.0002: 6 parameters, encoder.layer.0.attention.self.query.lora_A.default.weight ... "
          "encoder.layer.1.attention.self.value.lora_A.default.weight");
    CHECK(lines[1] ==
          "learning rate 0.5: 2 parameters, encoder.layer.0.attention.self.value.lora_B.default.weight ... "
          "encoder.layer.1.attention.self.value.lora_B.default.weight");
  });
}

TEST_CASE("a pattern that fits nothing is refused with its place and the names that there are") {
  auto recipe = lora_recipe();
  recipe.origins["train.learning_rate_mapping"] = "recipe.yaml:7";
  recipe.optim.learning_rate_mapping = {{"lora_C", 0.5}};
  const std::string none = refusal(recipe);
  INFO(none);
  CHECK(none.find("recipe.yaml:7: train.learning_rate_mapping.lora_C: matches no parameter") == 0);
  CHECK(none.find("encoder.layer.*.attention.self.query.lora_A.default.weight (2)") != std::string::npos);
  recipe.optim.learning_rate_mapping = {{"output\\.dense", 0.5}};
  CHECK(refusal(recipe).find("matches frozen parameters only") != std::string::npos);
  recipe.optim.learning_rate_mapping = {{"lora_(B", 0.5}};
  const std::string invalid = refusal(recipe);
  INFO(invalid);
  CHECK(invalid.find("recipe.yaml:7: train.learning_rate_mapping.lora_(B: ") == 0);
  CHECK(invalid.find("is not valid") != std::string::npos);
}
