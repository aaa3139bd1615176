// Steps of the engine on the synthetic model, over ranks that are threads.
#pragma once

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <mutex>
#include <string>

#include "chain_model.h"
#include "support/rank_messages.h"
#include "support/thread_ranks.h"

namespace stft::test {

using shard::ShardConfig;
using shard::ShardEngine;
using shard::Strategy;

inline constexpr int64_t kRows = 12;
inline constexpr int64_t kWholeBytes = (11 * 6 + 3 * (36 + 6 + 1)) * 4;  // of all gradients of the default shape

struct Setup {
  ChainShape shape = {};
  ShardConfig config = {};
  int64_t ranks = 2;
  int64_t shard = 0;  // 0: all ranks
  int64_t part = 1;
};

inline ShardConfig by_block() {
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

inline bool is_freed(const ChainModel& model, int64_t first, int64_t end) {
  for (int64_t i = first; i < end; ++i) {
    if (model.parameters[static_cast<size_t>(i)].leaf.storage().nbytes() > 0) {
      return false;
    }
  }
  return true;
}

// What the step computes from this rank's `forwards` (one a look-up of the rank's rows).
using Body = std::function<void(ChainModel&, ShardEngine&, const at::Tensor& ids)>;

inline void one_pass(ChainModel& model, ShardEngine& engine, const at::Tensor& ids) {
  torch::autograd::backward({chain_loss(model.forward(ids, &engine))}, {});
}

// Two towers: the second one sees the ids shifted.
inline at::Tensor two_towers(ChainModel& model, model::BlockObserver* observer, const at::Tensor& ids) {
  const auto first = model.forward(ids, observer);
  const auto second = model.forward((ids + 1) % 11, observer);
  return chain_loss(first) + (first * second).sum();
}

inline void two_passes(ChainModel& model, ShardEngine& engine, const at::Tensor& ids) {
  torch::autograd::backward({two_towers(model, &engine, ids)}, {});
}

// A rank's rows of the 12.
inline at::Tensor own_ids(int64_t rank, int64_t ranks) {
  const auto ids = chain_ids(kRows, 11);
  const int64_t chunk = (kRows + ranks - 1) / ranks;
  const int64_t first = std::min(rank * chunk, kRows);
  return ids.narrow(0, first, std::min(chunk, kRows - first));
}

inline std::vector<at::Tensor> whole_gradients(ShardEngine& engine, dist::ProcessGroup& shard, int64_t replicas) {
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
inline Result run(const Setup& setup, const Body& body) {
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
inline std::vector<at::Tensor> plain(const ChainShape& shape, const std::function<at::Tensor(ChainModel&)>& loss) {
  ChainModel model(shape);
  model.fill_plain();
  torch::autograd::backward({loss(model)}, {});
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : model.parameters) {
    gradients.push_back(parameter.leaf.grad());
  }
  return gradients;
}

inline std::vector<at::Tensor> plain_one(const ChainShape& shape = {}) {
  return plain(shape, [](ChainModel& model) { return chain_loss(model.forward(chain_ids(kRows, 11), nullptr)); });
}

inline void check_gradients(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected,
                            double tolerance) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    INFO("parameter " << i);
    REQUIRE(found[i].defined() == expected[i].defined());
    if (found[i].defined()) {
      CHECK((found[i] - expected[i]).norm().item<double>() <= tolerance * (1 + expected[i].norm().item<double>()));
    }
  }
}

inline uint64_t checksum_of_plain() {
  const auto single = dist::ProcessGroup::single();
  ChainModel model({});
  ShardEngine engine({model.parameters, model.blocks}, {*single, *single}, by_block());
  engine.fill(ChainModel::source());
  return engine.parameters_checksum();
}

inline bool are_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!at::equal(a[i], b[i])) {
      return false;
    }
  }
  return a.size() == b.size();
}

inline Setup with_strategy(Strategy strategy, int64_t ranks) {
  Setup setup;
  setup.config = by_block();
  setup.config.strategy = strategy;
  setup.ranks = ranks;
  setup.shard = strategy == Strategy::kNoShard ? 1 : ranks;
  return setup;
}

}  // namespace stft::test
