// What the engine communicates, keeps and gives, on a synthetic model.
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "chain_model.h"
#include "shard/unit_plan.h"
#include "support/thread_ranks.h"

using namespace stft;
using shard::ShardConfig;
using shard::ShardEngine;
using shard::Strategy;
using test::ChainModel;
using test::ChainShape;
using test::run_ranks;

namespace {

constexpr int64_t kRows = 12;
constexpr int64_t kWholeBytes = (11 * 6 + 3 * (36 + 6 + 1)) * 4;  // of all gradients of the default shape

struct Setup {
  ChainShape shape = {};
  ShardConfig config = {};
  int64_t ranks = 2;
  int64_t shard = 0;  // 0: all ranks
  int64_t part = 1;
};

ShardConfig by_block() {
  ShardConfig config;
  config.wrap = shard::WrapKind::kBlock;
  return config;
}

struct Result {
  std::vector<at::Tensor> gradients;  // whole, of every parameter; undefined: none
  dist::CollectiveCounts counts;      // of the step
  shard::MemoryUse planned, measured;
  bool is_empty_after_backward = true;
};

bool is_freed(const ChainModel& model, int64_t first, int64_t end) {
  for (int64_t i = first; i < end; ++i) {
    if (model.parameters[static_cast<size_t>(i)].leaf.storage().nbytes() > 0) {
      return false;
    }
  }
  return true;
}

// What the step computes from this rank's `forwards` (one a look-up of the rank's rows).
using Body = std::function<void(ChainModel&, ShardEngine&, const at::Tensor& ids)>;

void one_pass(ChainModel& model, ShardEngine& engine, const at::Tensor& ids) {
  torch::autograd::backward({test::chain_loss(model.forward(ids, &engine))}, {});
}

// Two towers: the second one sees the ids shifted.
at::Tensor two_towers(ChainModel& model, model::BlockObserver* observer, const at::Tensor& ids) {
  const auto first = model.forward(ids, observer);
  const auto second = model.forward((ids + 1) % 11, observer);
  return test::chain_loss(first) + (first * second).sum();
}

void two_passes(ChainModel& model, ShardEngine& engine, const at::Tensor& ids) {
  torch::autograd::backward({two_towers(model, &engine, ids)}, {});
}

// A rank's rows of the 12.
at::Tensor own_ids(int64_t rank, int64_t ranks) {
  const auto ids = test::chain_ids(kRows, 11);
  const int64_t chunk = (kRows + ranks - 1) / ranks;
  const int64_t first = std::min(rank * chunk, kRows);
  return ids.narrow(0, first, std::min(chunk, kRows - first));
}

std::vector<at::Tensor> whole_gradients(ShardEngine& engine, dist::ProcessGroup& shard, int64_t replicas) {
  std::vector<at::Tensor> result;
  for (const shard::LocalParameter& local : engine.local_parameters()) {
    if (!local.gradient.defined()) {
      result.emplace_back();
      continue;
    }
    const auto& layout = local.layout;
    if (shard.size() == 1 || local.copies > replicas) {  // this rank has all
      result.push_back(local.gradient.clone().view(local.parameter->shape));
      continue;
    }
    auto own = at::zeros({layout.chunk_numel()});
    own.narrow(0, 0, layout.own_numel()).copy_(local.gradient);
    auto all = at::empty({shard.size() * layout.chunk_numel()});
    shard.all_gather(all, own).wait();
    result.push_back(all.narrow(0, 0, local.parameter->numel()).view(local.parameter->shape));
  }
  return result;
}

// Runs `body` on all ranks; what rank 0 saw.
Result run(const Setup& setup, const Body& body) {
  Result result;
  std::mutex mutex;
  run_ranks(setup.ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const int64_t rank = world->rank();
    const int64_t size = setup.shard == 0 ? setup.ranks : setup.shard;
    const auto group = [&](const std::string& name, int64_t first, int64_t count, int64_t stride) {
      std::vector<int64_t> members;
      for (int64_t i = 0; i < count; ++i) {
        members.push_back(first + i * stride);
      }
      return world->subgroup(name + std::to_string(first), members);
    };
    const auto shard = group("shard", rank / size * size, size, 1);
    const auto replicate = group("replicate", rank % size, setup.ranks / size, size);
    const auto part = group("part", rank / setup.part * setup.part, setup.part, 1);
    ChainModel model(setup.shape);
    ShardEngine engine({model.parameters, model.blocks}, {*shard, *replicate, setup.part > 1 ? part.get() : nullptr},
                       setup.config);
    engine.fill(ChainModel::source());
    const auto before = engine.counts();
    body(model, engine, own_ids(rank, setup.ranks));
    engine.finish_gradients();
    const bool is_empty = is_freed(model, 0, static_cast<int64_t>(model.parameters.size()));
    const auto after = engine.counts();
    const auto gradients = whole_gradients(engine, *shard, replicate->size());
    const std::scoped_lock lock(mutex);
    if (rank == 0) {
      result.gradients = gradients;
      result.counts = after - before;
      result.planned = engine.planned_memory(false);
      result.measured = engine.measured_memory();
      result.is_empty_after_backward = is_empty;
    }
  });
  return result;
}

// The gradients of one process without an engine.
std::vector<at::Tensor> plain(const ChainShape& shape, const std::function<at::Tensor(ChainModel&)>& loss) {
  ChainModel model(shape);
  model.fill_plain();
  torch::autograd::backward({loss(model)}, {});
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : model.parameters) {
    gradients.push_back(parameter.leaf.grad());
  }
  return gradients;
}

std::vector<at::Tensor> plain_one(const ChainShape& shape = {}) {
  return plain(shape,
               [](ChainModel& model) { return test::chain_loss(model.forward(test::chain_ids(kRows, 11), nullptr)); });
}

void check_gradients(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected, double tolerance) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    INFO("parameter " << i);
    REQUIRE(found[i].defined() == expected[i].defined());
    if (found[i].defined()) {
      CHECK((found[i] - expected[i]).norm().item<double>() <= tolerance * (1 + expected[i].norm().item<double>()));
    }
  }
}

bool are_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!at::equal(a[i], b[i])) {
      return false;
    }
  }
  return a.size() == b.size();
}

Setup with_strategy(Strategy strategy, int64_t ranks) {
  Setup setup;
  setup.config = by_block();
  setup.config.strategy = strategy;
  setup.ranks = ranks;
  setup.shard = strategy == Strategy::kNoShard ? 1 : ranks;
  return setup;
}

}  // namespace

// L = 3 layers and a table: 4 groups. FSDP2's own counts are in fsdp2_tiny.json.
TEST_CASE("collectives of a step: gathers, reductions") {  // T6
  constexpr int64_t kLayers = 3;
  for (const int64_t prefetch : {0, 1, 3}) {
    INFO("prefetch " << prefetch);
    Setup full = with_strategy(Strategy::kFullShard, 2);
    full.config.prefetch = prefetch;
    Setup keeps = with_strategy(Strategy::kShardGradOp, 2);
    keeps.config.prefetch = prefetch;

    // Neither the table nor the last layer is gathered again for the backward.
    const auto one = run(full, one_pass).counts;
    CHECK(one.all_gathers == 2 * kLayers);  // FSDP2: 2 L + 1
    CHECK(one.reduce_scatters == kLayers + 1);
    CHECK(one.all_reduces == 0);
    const auto one_kept = run(keeps, one_pass).counts;
    CHECK(one_kept.all_gathers == kLayers + 1);
    CHECK(one_kept.reduce_scatters == kLayers + 1);

    const auto two = run(full, two_passes).counts;
    CHECK(two.all_gathers == 4 * kLayers);  // FSDP2: 4 L + 1
    CHECK(two.reduce_scatters == kLayers + 1);
    const auto two_kept = run(keeps, two_passes).counts;
    CHECK(two_kept.all_gathers == kLayers + 1);  // FSDP2: 2 L + 1
    CHECK(two_kept.reduce_scatters == kLayers + 1);
  }
  const auto copies = run(with_strategy(Strategy::kNoShard, 2), one_pass).counts;
  CHECK(copies.all_gathers == 0);
  CHECK(copies.reduce_scatters == 0);
  CHECK(copies.all_reduces == kLayers + 1);
}

TEST_CASE("merged blocks need fewer collectives") {
  Setup merged = with_strategy(Strategy::kFullShard, 2);
  merged.config.wrap = shard::WrapKind::kAuto;
  const auto found = run(merged, one_pass);
  CHECK(found.counts.all_gathers == 1);
  CHECK(found.counts.reduce_scatters == 1);
  check_gradients(found.gradients, plain_one(), 1e-6);
}

TEST_CASE("every way of keeping parameters gives the same gradients, bit for bit") {  // T5
  const auto expected = plain_one();
  for (const int64_t ranks : {2, 3, 4}) {
    const auto full = run(with_strategy(Strategy::kFullShard, ranks), one_pass);
    check_gradients(full.gradients, expected, 1e-6);
    CHECK(full.is_empty_after_backward);
    const auto kept = run(with_strategy(Strategy::kShardGradOp, ranks), one_pass);
    CHECK(are_equal(kept.gradients, full.gradients));
    CHECK(kept.is_empty_after_backward);
    Setup offloaded = with_strategy(Strategy::kFullShard, ranks);
    offloaded.config.cpu_offload = true;
    const auto from_host = run(offloaded, one_pass);
    CHECK(are_equal(from_host.gradients, full.gradients));
    CHECK(from_host.is_empty_after_backward);
    if (ranks == 4) {
      Setup parts = with_strategy(Strategy::kFullShard, ranks);
      parts.part = 2;
      const auto in_parts = run(parts, one_pass);
      CHECK(are_equal(in_parts.gradients, full.gradients));
      CHECK(in_parts.counts.all_gathers == full.counts.all_gathers);
      CHECK(in_parts.counts.bytes == full.counts.bytes);
      CHECK(in_parts.is_empty_after_backward);
      const auto towers = run(parts, two_passes);
      CHECK(are_equal(towers.gradients, run(with_strategy(Strategy::kFullShard, ranks), two_passes).gradients));
    }
  }
}

TEST_CASE("hybrid: cut within neighbours, copied over the rest") {
  const auto expected = plain_one();
  for (const auto& [ranks, shard] : std::vector<std::pair<int64_t, int64_t>>{{4, 2}, {2, 1}, {3, 3}, {6, 3}}) {
    INFO(ranks << " ranks in groups of " << shard);
    Setup hybrid = with_strategy(Strategy::kHybridShard, ranks);
    hybrid.shard = shard;
    const auto found = run(hybrid, one_pass);
    check_gradients(found.gradients, expected, 1e-6);
    CHECK(found.counts.reduce_scatters == (shard > 1 ? 4 : 0));
    CHECK(found.counts.all_reduces == (shard < ranks ? 4 : 0));
    check_gradients(run(hybrid, two_passes).gradients,
                    plain({}, [](ChainModel& model) { return two_towers(model, nullptr, test::chain_ids(kRows, 11)); }),
                    1e-6);
  }
}

TEST_CASE("three forwards before one backward, one of them unused by the loss") {  // T30
  const auto loss = [](ChainModel& model, model::BlockObserver* observer, const at::Tensor& ids) {
    const auto unused = model.forward((ids + 2) % 11, observer);
    const auto total = two_towers(model, observer, ids);
    CHECK(unused.requires_grad());
    return total;
  };
  const auto expected = plain({}, [&](ChainModel& model) { return loss(model, nullptr, test::chain_ids(kRows, 11)); });
  for (const auto strategy : {Strategy::kFullShard, Strategy::kShardGradOp, Strategy::kNoShard}) {
    const auto found =
        run(with_strategy(strategy, 2), [&](ChainModel& model, ShardEngine& engine, const at::Tensor& ids) {
          torch::autograd::backward({loss(model, &engine, ids)}, {});
          engine.finish_gradients();
          engine.clear_gradients();
          // Nothing of the first step is left: a second one reduces each group once again.
          torch::autograd::backward({loss(model, &engine, ids)}, {});
        });
    check_gradients(found.gradients, expected, 1e-6);
    CHECK(found.counts.reduce_scatters + found.counts.all_reduces == 2 * 4);
    CHECK((strategy == Strategy::kNoShard || found.is_empty_after_backward));
  }
}

TEST_CASE("a frozen group is gathered but never reduced; below it nothing is prefetched") {  // T9
  Setup setup = with_strategy(Strategy::kFullShard, 2);
  SECTION("in the middle") {
    setup.shape.frozen_blocks = {2};
    const auto found = run(setup, one_pass);
    check_gradients(found.gradients, plain_one(setup.shape), 1e-6);
    CHECK(found.counts.reduce_scatters == 3);
    CHECK(found.counts.all_gathers == 6);
  }
  SECTION("the table and the first two layers: the backward ends above them") {
    setup.shape.frozen_blocks = {0, 1, 2};
    const auto found = run(setup, one_pass);
    check_gradients(found.gradients, plain_one(setup.shape), 1e-6);
    CHECK(found.counts.reduce_scatters == 1);
    CHECK(found.counts.all_gathers == 4);  // each once, in the forward
    CHECK(found.measured.gradients == found.planned.gradients);
    CHECK(found.planned.gradients == (3 * 6 + 3 + 1) * 4);  // half of [6, 6], [6] and [1] (a row on each)
  }
}

TEST_CASE("frozen parameters stay in the dtype they were loaded in") {
  std::mutex mutex;
  run_ranks(2, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const auto single = dist::ProcessGroup::single();
    ChainShape shape;
    shape.frozen_blocks = {1};
    ChainModel model(shape);
    for (size_t i = 1; i < 4; ++i) {
      model.parameters[i].stored_dtype = at::kBFloat16;
    }
    ShardEngine engine({model.parameters, model.blocks}, {*world, *single}, by_block());
    engine.fill(ChainModel::source());
    const auto before = engine.counts().bytes;
    const auto output = model.forward(own_ids(world->rank(), 2), &engine);
    const auto gathered = engine.counts().bytes - before;
    torch::autograd::backward({test::chain_loss(output)}, {});
    engine.finish_gradients();
    ChainModel reference(shape);
    reference.fill_plain();
    for (size_t i = 1; i < 4; ++i) {
      reference.parameters[i].leaf = reference.parameters[i].leaf.to(at::kBFloat16).to(at::kFloat);
    }
    const auto expected = reference.forward(own_ids(world->rank(), 2), nullptr);
    const auto weight = engine.gather(1);
    const std::scoped_lock lock(mutex);
    CHECK((output - expected).abs().max().item<double>() < 1e-6);
    CHECK(weight.scalar_type() == at::kBFloat16);
    // Table [11, 6] as 12 rows; two layers in fp32, one in bf16 whose members are padded to 4 bytes; scales have 1 row.
    CHECK(gathered == 12 * 6 * 4 + 2 * 2 * (18 + 3 + 1) * 4 + 2 * (18 * 2 + 8 + 4));
    CHECK_FALSE(engine.local_parameters()[1].gradient.defined());
  });
}

TEST_CASE("parameters that every rank keeps whole have their gradients all-reduced") {  // T10
  Setup setup = with_strategy(Strategy::kFullShard, 3);
  setup.config.whole_parameters = {"weight.1", "bias.1"};
  const auto found = run(setup, one_pass);
  check_gradients(found.gradients, plain_one(), 1e-6);
  CHECK(found.counts.all_reduces == 1);
  CHECK(found.counts.reduce_scatters == 4);
}

TEST_CASE("a tied parameter sums the gradients of its uses; it cannot be wrapped apart") {  // T16
  ChainShape shape;
  shape.has_tied_head = true;
  Setup setup = with_strategy(Strategy::kFullShard, 2);
  setup.shape = shape;
  setup.config.wrap = shard::WrapKind::kAuto;
  for (const int64_t own_group_bytes : {int64_t{1} << 30, int64_t{1}}) {
    setup.config.own_group_bytes = own_group_bytes;
    check_gradients(run(setup, one_pass).gradients, plain_one(shape), 1e-6);
  }
  const ChainModel model(shape);
  const auto problem = shard::wrap_problem(model.parameters, model.blocks, by_block());
  REQUIRE(problem.has_value());
  CHECK_THAT(*problem, Catch::Contains("embeddings and head share table"));
  setup.config.wrap = shard::WrapKind::kBlock;
  CHECK_THROWS_AS(run(setup, one_pass), InternalError);
}

TEST_CASE("several micro-batches: reduced each time or once") {  // T11
  const auto expected = plain({}, [](ChainModel& model) {
    const auto ids = test::chain_ids(kRows, 11);
    return test::chain_loss(model.forward(ids, nullptr)) + test::chain_loss(model.forward((ids + 4) % 11, nullptr)) +
           test::chain_loss(model.forward((ids + 5) % 11, nullptr));
  });
  for (const bool reduces_each : {true, false}) {
    const Body micro_batches = [reduces_each](ChainModel& model, ShardEngine& engine, const at::Tensor& ids) {
      for (const int64_t shift : {0, 4, 5}) {
        engine.set_gradient_sync(reduces_each || shift == 5);
        torch::autograd::backward({test::chain_loss(model.forward((ids + shift) % 11, &engine))}, {});
      }
    };
    const auto full = run(with_strategy(Strategy::kFullShard, 2), micro_batches);
    check_gradients(full.gradients, expected, 1e-6);
    CHECK(full.counts.reduce_scatters == (reduces_each ? 3 * 4 : 4));
    const auto kept = run(with_strategy(Strategy::kShardGradOp, 2), micro_batches);
    check_gradients(kept.gradients, expected, 1e-6);
    // Without a reduction the parameters do not change, so they stay gathered for the next micro-batch.
    CHECK(kept.counts.all_gathers == (reduces_each ? 3 * 4 : 4));
    CHECK(full.measured.gradients == (reduces_each ? full.planned.gradients : kWholeBytes));
  }
}

TEST_CASE("kept for a step, nothing is gathered twice") {
  for (const auto gather : {ShardEngine::KeepUnsharded::Gather::kNow, ShardEngine::KeepUnsharded::Gather::kWhenUsed}) {
    const auto found =
        run(with_strategy(Strategy::kFullShard, 2), [&](ChainModel& model, ShardEngine& engine, const at::Tensor& ids) {
          const ShardEngine::KeepUnsharded keep(engine, gather);
          {
            const at::NoGradGuard no_grad;
            model.forward(ids, &engine);
          }
          two_passes(model, engine, ids);
        });
    CHECK(found.counts.all_gathers == 4);
    CHECK(found.counts.reduce_scatters == 4);
    check_gradients(found.gradients,
                    plain({}, [](ChainModel& model) { return two_towers(model, nullptr, test::chain_ids(kRows, 11)); }),
                    1e-6);
    CHECK(found.is_empty_after_backward);
  }
}

TEST_CASE("bytes that are planned are those that are measured") {
  for (const auto strategy : {Strategy::kFullShard, Strategy::kShardGradOp, Strategy::kNoShard}) {
    for (const int64_t ranks : {1, 2, 3}) {
      for (const int64_t prefetch : {0, 1, 2}) {
        for (const bool is_offloaded : {false, true}) {
          INFO("strategy " << static_cast<int>(strategy) << " ranks " << ranks << " prefetch " << prefetch
                           << " offloaded " << is_offloaded);
          Setup setup = with_strategy(strategy, ranks);
          setup.config.prefetch = prefetch;
          setup.config.cpu_offload = is_offloaded;
          const auto found = run(setup, one_pass);
          CHECK(found.planned.parameters == found.measured.parameters);
          CHECK(found.planned.gradients == found.measured.gradients);
          CHECK(found.planned.gathers == found.measured.gathers);
          CHECK((found.measured.gathers > 0) == (setup.shard > 1 || is_offloaded));
        }
      }
    }
  }
  const auto evaluated =
      run(with_strategy(Strategy::kFullShard, 2), [](ChainModel& model, ShardEngine& engine, const at::Tensor& ids) {
        one_pass(model, engine, ids);
        const ShardEngine::KeepUnsharded keep(engine);  // not a part of the step
      });
  CHECK(evaluated.planned.gathers == evaluated.measured.gathers);
  Setup parts = with_strategy(Strategy::kFullShard, 4);
  parts.part = 2;
  const auto found = run(parts, one_pass);
  CHECK(found.planned.gathers == found.measured.gathers);
  CHECK(found.measured.gathers > run(with_strategy(Strategy::kFullShard, 4), one_pass).measured.gathers);
}

TEST_CASE("after an exception in a block on every rank the engine starts anew") {  // T28
  const auto expected = plain_one();
  for (const bool in_backward : {false, true}) {
    const auto found =
        run(with_strategy(Strategy::kFullShard, 2), [&](ChainModel& model, ShardEngine& engine, const at::Tensor& ids) {
          bool has_thrown = false;
          try {
            if (in_backward) {
              auto output = model.forward(ids, &engine);
              output.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("stop"); });
              torch::autograd::backward({test::chain_loss(output)}, {});
            } else {
              engine.before_block(0, {});
              engine.after_block(0, at::zeros({1}));
              engine.before_block(1, at::zeros({1}).requires_grad_(true));
              throw std::runtime_error("stop");
            }
          } catch (const std::exception&) {
            has_thrown = true;
          }
          CHECK(has_thrown);
          engine.reset();
          CHECK(is_freed(model, 0, static_cast<int64_t>(model.parameters.size())));
          one_pass(model, engine, ids);
        });
    check_gradients(found.gradients, expected, 1e-6);
  }
}
