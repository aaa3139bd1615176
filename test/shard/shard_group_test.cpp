#include "shard/shard_group.h"

#include <ATen/ATen.h>

#include <atomic>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "shard/shard_layout.h"
#include "support/thread_ranks.h"

using namespace stft;
using shard::shard_layout;
using test::run_ranks;

TEST_CASE("rows are cut as torch.chunk does") {  // T2
  const auto own = [](std::vector<int64_t> shape, int64_t ranks) {
    std::vector<int64_t> counts;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      counts.push_back(shard_layout(shape, rank, ranks).own_rows);
    }
    return counts;
  };
  CHECK(own({5, 3}, 3) == std::vector<int64_t>{2, 2, 1});
  CHECK(own({4}, 3) == std::vector<int64_t>{2, 2, 0});
  CHECK(own({1, 7}, 3) == std::vector<int64_t>{1, 0, 0});
  CHECK(own({6}, 1) == std::vector<int64_t>{6});
  const auto last = shard_layout({5, 3}, 2, 3);
  CHECK(last.first_row == 4);
  CHECK(last.chunk_numel() == 6);
  CHECK(last.own_numel() == 3);
}

TEST_CASE("a scalar is refused when it is wrapped") {  // T4
  CHECK_THROWS_WITH(shard_layout({}, 0, 2), Catch::Contains("make it 1-D"));
}

namespace {

struct Fixture {
  std::deque<model::Parameter> table;
  std::vector<model::Parameter*> pointers;

  Fixture() {
    for (const auto& [name, shape] : std::vector<std::pair<std::string, std::vector<int64_t>>>{
             {"a", {5, 3}}, {"b", {1}}, {"c", {4}}, {"d", {2, 2}}}) {
      model::Parameter parameter;
      parameter.name = name;
      parameter.shape = shape;
      table.push_back(parameter);
    }
    for (auto& parameter : table) {
      pointers.push_back(&parameter);
    }
  }

  static at::Tensor whole(const model::Parameter& parameter, double offset) {
    return (at::arange(parameter.numel()).to(at::kFloat) + offset).view(parameter.shape);
  }

  void fill(shard::ShardGroup& group) {
    for (auto& local : group.local_parameters()) {
      local.value.copy_(whole(*local.parameter, 1)
                            .view({-1})
                            .narrow(0, local.layout.first_row * local.layout.row_numel, local.layout.own_numel()));
    }
  }
};

}  // namespace

TEST_CASE("a group gathers, frees and refills the same storage, and padding stays zero") {  // T2, T3
  for (const int64_t ranks : {1, 2, 3}) {
    std::atomic<int> right{0};
    run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
      const auto single = dist::ProcessGroup::single();
      Fixture fixture;
      shard::MemoryMeter meter;
      shard::ShardGroup group("g", fixture.pointers, {.shard = *world, .replicate = *single, .meter = meter});
      fixture.fill(group);
      bool ok = true;
      std::vector<uint32_t> versions;
      for (const auto& parameter : fixture.table) {
        versions.push_back(parameter.leaf._version());
      }
      for (int round = 0; round < 2; ++round) {
        group.finish_unshard();
        for (size_t i = 0; i < fixture.table.size(); ++i) {
          const auto& leaf = fixture.table[i].leaf;
          ok = ok && at::equal(leaf, Fixture::whole(fixture.table[i], 1)) && leaf._version() == versions[i];
        }
        ok = ok && group.state() == shard::GroupState::kUnsharded;
        group.reshard();
        for (const auto& parameter : fixture.table) {
          ok = ok && (ranks == 1 || parameter.leaf.storage().nbytes() == 0);
        }
      }
      for (size_t i = 0; i < fixture.table.size(); ++i) {
        ok = ok && at::equal(group.gather(static_cast<int64_t>(i)), Fixture::whole(fixture.table[i], 1));
      }
      right += ok ? 1 : 0;
    });
    CHECK(right == ranks);
  }
}

TEST_CASE("gradients are summed over ranks and each rank keeps its rows; a missing one counts as zero") {
  for (const bool is_sharded : {true, false}) {
    for (const int64_t ranks : {1, 2, 3}) {
      std::atomic<int> right{0};
      run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
        const auto single = dist::ProcessGroup::single();
        Fixture fixture;
        shard::MemoryMeter meter;
        shard::ShardGroup group(
            "g", fixture.pointers,
            {.shard = is_sharded ? *world : *single, .replicate = is_sharded ? *single : *world, .meter = meter});
        fixture.fill(group);
        for (int micro = 0; micro < 2; ++micro) {
          group.finish_unshard();
          for (auto& parameter : fixture.table) {
            if (parameter.name != "c" || world->rank() == 0) {
              const auto gradient = Fixture::whole(parameter, static_cast<double>(world->rank()));
              auto& held = parameter.leaf.mutable_grad();
              held = held.defined() ? held + gradient : gradient;  // as autograd accumulates
            }
          }
          group.reshard();
          group.start_reduce();
          group.finish_reduce();
        }
        bool ok = true;
        for (const auto& local : group.local_parameters()) {
          const bool is_c = local.parameter->name == "c";
          const double senders = is_c ? 1 : static_cast<double>(ranks);
          const double offsets = is_c ? 0 : static_cast<double>(ranks * (ranks - 1)) / 2;
          const auto expected = (Fixture::whole(*local.parameter, 0) * senders + offsets) * 2;
          ok = ok &&
               at::equal(local.gradient, expected.view({-1}).narrow(0, local.layout.first_row * local.layout.row_numel,
                                                                    local.layout.own_numel()));
        }
        group.clear_gradients();
        for (const auto& local : group.local_parameters()) {
          ok = ok && !local.gradient.defined();
        }
        right += ok ? 1 : 0;
      });
      INFO("sharded " << is_sharded << " ranks " << ranks);
      CHECK(right == ranks);
    }
  }
}
