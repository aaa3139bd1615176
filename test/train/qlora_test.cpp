// Adapters on a quantized base under every sharding strategy.
#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "base/error.h"
#include "checkpoint/quantized_base.h"
#include "io/temporary_directory.h"
#include "support/family_model.h"
#include "support/run_fixture.h"
#include "support/same_training.h"
#include "train/run_quantization.h"

using namespace stft;
using test::run_ranks;

namespace {

struct Outcome : test::Trained {
  uint64_t before = 0, after = 0;  // hashes of the quantized base
  std::vector<std::string> names;
  std::vector<bool> trainable;
  std::vector<at::ScalarType> stored;
  int64_t shard_bytes = 0;  // of this rank
};

recipe::Recipe qlora_recipe() {
  auto recipe = test::tiny_recipe();
  test::use_triplets(recipe, 1, 40);
  recipe.train.global_batch_size = 12;  // 12, 12, 12, 4
  recipe.train.max_steps = 4;
  recipe.train.shuffle = true;
  recipe.model.dropout = 0.1;
  recipe.optim.learning_rate = 0.5;
  peft::AdapterConfig adapter;
  adapter.type = peft::AdapterType::kQlora;
  adapter.r = 5;
  adapter.lora_alpha = 10;
  adapter.lora_dropout = 0.1;
  adapter.target_modules = {"query", "value"};  // what is not targeted is quantized as well
  adapter.target_modules_is_list = true;
  recipe.adapter = adapter;
  quant::QuantizationConfig quantization;
  quantization.bnb_4bit_quant_type = quant::QuantType::kNf4;
  quantization.bnb_4bit_use_double_quant = true;
  quantization.blocksize = 32;
  recipe.quantization = quantization;
  return recipe;
}

Outcome outcome_of(const recipe::Recipe& recipe, int64_t ranks, shard::Strategy strategy,
                   bool reduces_every_micro_batch = true) {
  Outcome outcome;
  std::mutex mutex;
  run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const int64_t rank = world->rank();
    auto run = test::assemble_on(std::move(world), recipe, strategy);
    const uint64_t before = run->quantized_base_hash;
    auto runner = test::runner_of(*run, reduces_every_micro_batch);
    auto trained = test::train_all(*run, runner);
    train::check_quantized_base(*run);
    const uint64_t after = run->quantized ? run->engine->packed_checksum() : 0;
    const int64_t bytes = run->engine->measured_memory().parameters;
    const std::lock_guard lock(mutex);
    if (rank != 0) {
      return;
    }
    static_cast<test::Trained&>(outcome) = std::move(trained);
    outcome.before = before;
    outcome.after = after;
    outcome.shard_bytes = bytes;
    for (const model::Parameter& parameter : run->model->parameters()) {
      outcome.names.push_back(parameter.name);
      outcome.trainable.push_back(parameter.is_trainable);
      outcome.stored.push_back(parameter.stored_dtype);
    }
  });
  return outcome;
}

Outcome one_rank(const recipe::Recipe& recipe) {
  return outcome_of(recipe, 1, shard::Strategy::kFullShard);
}

// The same training but for rounding; what is frozen is equal bit by bit.
void check_same(const Outcome& found, const Outcome& expected) {
  REQUIRE(found.losses.size() == expected.losses.size());
  for (size_t i = 0; i < found.losses.size(); ++i) {
    INFO("step " << i + 1);
    CHECK(found.losses[i] == Approx(expected.losses[i]).epsilon(1e-6));
    CHECK(found.norms[i] == Approx(expected.norms[i]).epsilon(2e-6));
  }
  for (size_t i = 0; i < found.weights.size(); ++i) {
    INFO(found.names[i]);
    if (found.trainable[i]) {
      CHECK((found.weights[i] - expected.weights[i]).abs().max().item<double>() < 1e-6);
    } else {
      CHECK(at::equal(found.weights[i], expected.weights[i]));
    }
  }
  CHECK(found.before == expected.before);
  CHECK(found.after == expected.before);
}

}  // namespace

TEST_CASE("T8: QLoRA on 1, 2 and 3 ranks trains alike under every strategy; the packed base stays bit by bit") {
  const Outcome one = one_rank(qlora_recipe());
  CHECK(one.before != 0);
  int64_t packed = 0, moved = 0;
  for (size_t i = 0; i < one.names.size(); ++i) {
    packed += one.stored[i] == at::kByte ? 1 : 0;
    const bool is_up = one.names[i].find("lora_B") != std::string::npos;
    moved += is_up && one.weights[i].abs().max().item<double>() > 0 ? 1 : 0;
  }
  CHECK(packed == 12);  // six projections of two layers
  CHECK(moved == 4);
  for (const auto strategy : {shard::Strategy::kFullShard, shard::Strategy::kShardGradOp, shard::Strategy::kNoShard}) {
    for (const int64_t ranks : {1, 2, 3}) {
      INFO("ranks " << ranks << " strategy " << static_cast<int>(strategy));
      check_same(outcome_of(qlora_recipe(), ranks, strategy), one);
    }
  }
}

TEST_CASE("a quantized base is not the base, and a LoRA run has none") {
  auto plain = qlora_recipe();
  plain.quantization.reset();
  plain.adapter->type = peft::AdapterType::kLora;
  const Outcome lora = one_rank(plain);
  CHECK(lora.before == 0);
  const Outcome qlora = one_rank(qlora_recipe());
  CHECK(lora.losses[0] != Approx(qlora.losses[0]).epsilon(1e-6));
  CHECK(lora.losses[0] == Approx(qlora.losses[0]).epsilon(0.2));
  CHECK(qlora.shard_bytes < lora.shard_bytes);
}

TEST_CASE("QLoRA trains alike with hybrid shards, parts, shards in host memory, FP4, and single quantization") {
  auto recipe = qlora_recipe();
  auto strategy = shard::Strategy::kFullShard;
  SECTION("hybrid") {
    strategy = shard::Strategy::kHybridShard;
    recipe.sharding.hybrid_shard_size = 2;
  }
  SECTION("parts") {
    recipe.sharding.reshard_after_forward_size = 2;
  }
  SECTION("offload") {
    recipe.sharding.cpu_offload = true;
  }
  SECTION("fp4, blocks of 64, single") {
    recipe.quantization = quant::QuantizationConfig{};
    recipe.quantization->blocksize = 64;
  }
  auto plain = recipe;
  plain.sharding.reshard_after_forward_size.reset();
  plain.sharding.cpu_offload = false;
  check_same(outcome_of(recipe, 4, strategy), one_rank(plain));
}

TEST_CASE("T18: checkpointing, accumulation and sharding change nothing of QLoRA") {
  for (const int64_t accumulation : {1, 2}) {
    auto recipe = qlora_recipe();
    recipe.train.global_batch_size = 12 * accumulation;
    recipe.train.gradient_accumulation_steps = accumulation;
    recipe.train.max_steps = 3;
    const Outcome plain = one_rank(recipe);
    for (const bool recomputes : {false, true}) {
      recipe.train.gradient_checkpointing = recomputes;
      for (const bool reduces : {true, false}) {
        INFO("accumulation " << accumulation << " recomputes " << recomputes << " reduces " << reduces);
        check_same(outcome_of(recipe, 2, shard::Strategy::kFullShard, reduces), plain);
      }
    }
  }
}

TEST_CASE("at learning rate 0 adapter and base are the same bytes at any rank count") {
  auto recipe = qlora_recipe();
  recipe.optim.learning_rate = 0;
  const Outcome one = one_rank(recipe);
  for (const int64_t ranks : {2, 3}) {
    const Outcome found = outcome_of(recipe, ranks, shard::Strategy::kFullShard);
    for (size_t i = 0; i < one.weights.size(); ++i) {
      CHECK(at::equal(found.weights[i], one.weights[i]));
    }
  }
}

TEST_CASE("A33: bf16 compute trains an adapter of fp32 on the same packed base") {
  auto recipe = qlora_recipe();
  recipe.train.bf16 = true;
  recipe.quantization->bnb_4bit_compute_dtype = quant::WeightDtype::kBf16;
  recipe.model.dropout = 0;
  recipe.adapter->lora_dropout = 0;
  for (const bool recomputes : {false, true}) {
    recipe.train.gradient_checkpointing = recomputes;
    const Outcome one = one_rank(recipe);
    CHECK(one.before == one_rank(qlora_recipe()).before);
    const Outcome two = outcome_of(recipe, 2, shard::Strategy::kFullShard);
    CHECK(two.after == one.before);
    for (size_t i = 0; i < one.losses.size(); ++i) {
      CHECK(std::isfinite(two.losses[i]));
      CHECK(two.losses[i] ==
            Approx(one.losses[i]).epsilon(i == 0 ? 1e-4 : 5e-3));  // large steps amplify bf16's rounding
    }
  }
}

TEST_CASE("quantizing while loading holds a stretch of one weight in fp32, never the model") {
  const auto single = dist::ProcessGroup::single();
  auto run = test::assemble_on(dist::ProcessGroup::single(), qlora_recipe(), shard::Strategy::kFullShard);
  int64_t largest = 0, all = 0;
  for (const model::Parameter& parameter : run->model->parameters()) {
    all += parameter.numel();
  }
  const auto counted = [&, source = run->weights->source()](const model::Parameter& parameter,
                                                            const shard::ShardLayout& layout, at::Tensor destination) {
    largest = std::max(largest, parameter.stored_dtype == at::kByte ? destination.numel() : 0);
    CHECK(destination.scalar_type() == at::kFloat);
    source(parameter, layout, std::move(destination));
  };
  const auto rows = run->quantized->rows(counted);
  for (const shard::LocalParameter& local : run->engine->local_parameters()) {
    if (local.parameter->stored_dtype == at::kByte) {
      auto bytes = at::empty_like(local.value);
      rows(*local.parameter, local.layout, bytes);
      CHECK(at::equal(bytes, local.value));
    }
  }
  CHECK(largest > 0);
  CHECK(largest <= (int64_t{1} << 20) + 2 * 96);
  CHECK(largest * 4 < all);
}

TEST_CASE("weights of several groups of blocks are cut between the ranks") {
  test::TemporaryDirectory directory;
  auto config = test::trainable_config("bert");
  config["hidden_size"] = 64;
  config["intermediate_size"] = 512;  // 4 groups of 256 blocks of 32; the square ones are half a group
  config["num_attention_heads"] = 4;
  config["num_hidden_layers"] = 2;
  const std::string model = directory.path("model");
  test::write_model_directory(model, config);
  test::write_weights(model, test::invented_weights(config));
  auto recipe = qlora_recipe();
  recipe.model.name_or_path = model;
  recipe.adapter->target_modules = {"all-linear"};
  recipe.adapter->target_modules_is_list = false;
  recipe.optim.learning_rate = 0.05;
  recipe.train.max_steps = 3;
  const Outcome one = one_rank(recipe);
  for (const int64_t ranks : {2, 3}) {
    for (const auto strategy : {shard::Strategy::kFullShard, shard::Strategy::kNoShard}) {
      INFO("ranks " << ranks << " strategy " << static_cast<int>(strategy));
      const Outcome found = outcome_of(recipe, ranks, strategy);
      check_same(found, one);
      CHECK((found.shard_bytes < one.shard_bytes) == (strategy == shard::Strategy::kFullShard));
    }
  }
}

namespace {

// The gathered leaves of a run on one rank, by name.
std::map<std::string, at::Tensor> leaves_of(train::Run& run) {
  std::map<std::string, at::Tensor> leaves;
  const shard::ShardEngine::KeepUnsharded gathered(*run.engine);
  for (const model::Parameter& parameter : run.model->parameters()) {
    leaves[parameter.name] = parameter.leaf.detach().clone();
  }
  return leaves;
}

}  // namespace

TEST_CASE("a base that bitsandbytes quantized is kept byte by byte; ours of the same model is as close as its picks") {
  auto recipe = qlora_recipe();
  recipe.quantization->blocksize = 64;
  auto ours = test::assemble_on(dist::ProcessGroup::single(), recipe, shard::Strategy::kFullShard);
  CHECK(ours->quantized->stored_count() == 0);
  recipe.model.name_or_path = test::golden_path("qlora/base");
  auto theirs = test::assemble_on(dist::ProcessGroup::single(), recipe, shard::Strategy::kFullShard);
  CHECK(theirs->quantized->stored_count() == 12);
  const auto of_ours = leaves_of(*ours);
  const auto of_theirs = leaves_of(*theirs);
  const std::string expected = test::golden_path("qlora/adapter/expected.safetensors");
  const auto golden = io::SafetensorsFile::open(expected);
  int compared = 0;
  for (const auto& [name, leaf] : of_theirs) {
    if (golden.find("weights/" + name) == nullptr) {
      continue;
    }
    INFO(name);
    const auto weight = test::read_tensor(expected, "weights/" + name);
    CHECK(at::equal(leaf, weight));
    // Codes are equal; a statistic may be a step or two of its 8 bits away.
    const double distance = (of_ours.at(name) - weight).abs().max().item<double>();
    CHECK(distance <= 0.02 * weight.abs().max().item<double>());
    ++compared;
  }
  CHECK(compared == 12);
  CHECK(theirs->quantized_base_hash != 0);
}

TEST_CASE("a weight that is not finite is refused by name; one with far outliers keeps fp32 statistics") {
  const test::TemporaryDirectory directory;
  const auto config = test::trainable_config("bert");
  auto weights = test::invented_weights(config);
  const std::string name = "encoder.layer.0.intermediate.dense.weight";
  const auto found = std::find_if(weights.begin(), weights.end(),
                                  [&](const test::NamedTensor& weight) { return weight.name == name; });
  REQUIRE(found != weights.end());
  const bool is_finite = GENERATE(true, false);
  found->value[3][1] = is_finite ? 3e4 : std::numeric_limits<double>::quiet_NaN();
  const std::string model = directory.path("model");
  test::write_model_directory(model, config);
  test::write_weights(model, weights);
  auto recipe = qlora_recipe();
  recipe.model.name_or_path = model;
  const auto assemble = [&] {
    return test::assemble_on(dist::ProcessGroup::single(), recipe, shard::Strategy::kFullShard);
  };
  if (is_finite) {
    const auto run = assemble();
    CHECK(run->quantized->kept_single() == std::vector<std::string>{name});
  } else {
    CHECK_THROWS_AS(assemble(), UserError);
    recipe.quantization->bnb_4bit_use_double_quant = false;  // then it is met while the engine is filled
    CHECK_THROWS_WITH(assemble(), Catch::Matchers::Contains(name) && Catch::Matchers::Contains("NaN at [3, 1]"));
  }
}

TEST_CASE("T5's wo stays whole, as transformers leaves it") {
  const test::TemporaryDirectory directory;
  const auto config = test::trainable_config("t5");
  test::write_model_directory(directory.path("model"), config);
  test::write_weights(directory.path("model"), test::invented_weights(config));
  auto recipe = qlora_recipe();
  recipe.model.name_or_path = directory.path("model");
  recipe.adapter->target_modules = {"q", "v"};
  recipe.optim.learning_rate = 1e-3;
  const Outcome one = one_rank(recipe);
  int64_t packed = 0;
  for (size_t i = 0; i < one.names.size(); ++i) {
    INFO(one.names[i]);
    const bool is_wo = one.names[i].ends_with("DenseReluDense.wo.weight");
    CHECK((is_wo && one.stored[i] == at::kByte) == false);
    packed += one.stored[i] == at::kByte ? 1 : 0;
  }
  CHECK(packed > 0);
  check_same(outcome_of(recipe, 2, shard::Strategy::kFullShard), one);
}

TEST_CASE("a weight of fewer blocks than a group is no larger for it") {
  auto recipe = qlora_recipe();
  recipe.quantization->blocksize = 1024;
  run_ranks(1, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const auto run = test::assemble_on(std::move(world), recipe, shard::Strategy::kFullShard);
    CHECK(run->quantized->packed_bytes() * 6 < run->quantized->float_bytes());
  });
}
