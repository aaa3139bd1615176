// When the engine communicates, what it keeps meanwhile, and how a step that fails ends.
#include "chain_run.h"

using namespace stft;
using namespace stft::test;

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
                    plain({}, [](ChainModel& model) { return two_towers(model, nullptr, chain_ids(kRows, 11)); }),
                    1e-6);
  }
}

TEST_CASE("three forwards before one backward, one of them unused by the loss") {  // T30
  const auto loss = [](ChainModel& model, model::BlockObserver* observer, const at::Tensor& ids) {
    const auto unused = model.forward((ids + 2) % 11, observer);
    const auto total = two_towers(model, observer, ids);
    {
      const std::scoped_lock lock(assertion_mutex());
      CHECK(unused.requires_grad());
    }
    return total;
  };
  const auto expected = plain({}, [&](ChainModel& model) { return loss(model, nullptr, chain_ids(kRows, 11)); });
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

TEST_CASE("a gradient that an earlier micro-batch left is reduced at the end of the step") {
  // The second backward passes the table and the first layer only.
  const auto expected = plain({}, [](ChainModel& model) {
    const auto ids = chain_ids(kRows, 11);
    return chain_loss(model.forward(ids, nullptr)) + chain_loss(model.forward_to(1, ids, nullptr));
  });
  for (const auto strategy : {Strategy::kFullShard, Strategy::kShardGradOp, Strategy::kNoShard}) {
    const auto found =
        run(with_strategy(strategy, 2), [](ChainModel& model, ShardEngine& engine, const at::Tensor& ids) {
          engine.set_gradient_sync(false);
          one_pass(model, engine, ids);
          engine.set_gradient_sync(true);
          torch::autograd::backward({chain_loss(model.forward_to(1, ids, &engine))}, {});
        });
    check_gradients(found.gradients, expected, 1e-6);
    CHECK(found.counts.reduce_scatters + found.counts.all_reduces == 4);
  }
}

TEST_CASE("the next group is on its way while a block computes, forward and backward") {
  run(with_strategy(Strategy::kFullShard, 2), [](ChainModel& model, ShardEngine& engine, const at::Tensor& ids) {
    // A group a block: what the states are inside the blocks.
    struct Spy final : model::BlockObserver {
      ShardEngine& engine;
      std::vector<std::pair<shard::GroupState, shard::GroupState>> forward, backward;  // of the block, of the next
      explicit Spy(ShardEngine& of) : engine(of) {}
      shard::GroupState state(int64_t block) const { return engine.groups()[static_cast<size_t>(block)]->state(); }
      at::Tensor before_block(int64_t block, at::Tensor input) override {
        input = engine.before_block(block, input);
        if (block < 3) {
          forward.emplace_back(state(block), state(block + 1));
        }
        return input;
      }
      at::Tensor after_block(int64_t block, at::Tensor output) override {
        output = engine.after_block(block, output);
        output.register_hook([this, block](const at::Tensor& gradient) {
          if (block > 1) {
            backward.emplace_back(state(block), state(block - 1));
          }
          return gradient;
        });
        return output;
      }
    } spy(engine);
    torch::autograd::backward({chain_loss(model.forward(ids, &spy))}, {});
    const std::pair ahead{shard::GroupState::kUnsharded, shard::GroupState::kGathering};
    const std::scoped_lock lock(assertion_mutex());
    CHECK((spy.forward == std::vector(3, ahead)));
    CHECK((spy.backward == std::vector(2, ahead)));
  });
}

TEST_CASE("several micro-batches: reduced each time or once") {  // T11
  const auto expected = plain({}, [](ChainModel& model) {
    const auto ids = chain_ids(kRows, 11);
    return chain_loss(model.forward(ids, nullptr)) + chain_loss(model.forward((ids + 4) % 11, nullptr)) +
           chain_loss(model.forward((ids + 5) % 11, nullptr));
  });
  for (const bool reduces_each : {true, false}) {
    const Body micro_batches = [reduces_each](ChainModel& model, ShardEngine& engine, const at::Tensor& ids) {
      for (const int64_t shift : {0, 4, 5}) {
        engine.set_gradient_sync(reduces_each || shift == 5);
        torch::autograd::backward({chain_loss(model.forward((ids + shift) % 11, &engine))}, {});
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
                    plain({}, [](ChainModel& model) { return two_towers(model, nullptr, chain_ids(kRows, 11)); }),
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
              torch::autograd::backward({chain_loss(output)}, {});
            } else {
              engine.before_block(0, {});
              engine.after_block(0, at::zeros({1}));
              engine.before_block(1, at::zeros({1}).requires_grad_(true));
              throw std::runtime_error("stop");
            }
          } catch (const std::exception&) {
            has_thrown = true;
          }
          engine.reset();
          {
            const std::scoped_lock lock(assertion_mutex());
            CHECK(has_thrown);
            CHECK(is_freed(model, 0, static_cast<int64_t>(model.parameters.size())));
          }
          one_pass(model, engine, ids);
        });
    check_gradients(found.gradients, expected, 1e-6);
  }
}

TEST_CASE("an exception inside a block on one rank ends the others with the collective's error") {  // T28
  for (const bool in_backward : {false, true}) {
    const auto messages = messages_of_ranks<std::exception>(3, [&](std::unique_ptr<dist::ProcessGroup> world) {
      const auto single = dist::ProcessGroup::single();
      ChainModel model({});
      ShardEngine engine({model.parameters, model.blocks}, {*world, *single}, by_block());
      engine.fill(ChainModel::source());
      const bool fails = world->rank() == 1;
      struct Failing final : model::BlockObserver {
        ShardEngine& engine;
        bool in_forward, in_backward;
        Failing(ShardEngine& of, bool forward, bool backward)
            : engine(of), in_forward(forward), in_backward(backward) {}
        at::Tensor before_block(int64_t block, at::Tensor input) override {
          if (in_forward && block == 2) {
            throw std::runtime_error("out of memory");
          }
          return engine.before_block(block, input);
        }
        at::Tensor after_block(int64_t block, at::Tensor output) override {
          output = engine.after_block(block, output);
          if (in_backward && block == 2) {
            output.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("out of memory"); });
          }
          return output;
        }
      } observer(engine, fails && !in_backward, fails && in_backward);
      torch::autograd::backward({chain_loss(model.forward(own_ids(world->rank(), 3), &observer))}, {});
      engine.finish_gradients();
    });
    CHECK_THAT(messages[1], Catch::Contains("out of memory"));
    for (const size_t rank : {size_t{0}, size_t{2}}) {
      CHECK_THAT(messages[rank], Catch::Contains("failed on rank " + std::to_string(rank)));
    }
  }
}
