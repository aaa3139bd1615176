#include "shard/shard_engine.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <mutex>
#include <tuple>

#include "support/plain_model.h"
#include "support/thread_ranks.h"

using namespace stft;
using model::Layout;
using test::run_ranks;

namespace {

const std::vector<std::string> kTexts = {"a small animal", "to move quickly on foot", "of or relating to the sea", "x",
                                         "the act of removing a layer from the surface of something"};

// The engine over a model that is built like PlainModel's but filled by the engine.
struct ShardedModel {
  test::PlainModel plain;
  checkpoint::PretrainedWeights weights;
  shard::ShardEngine engine;

  ShardedModel(const std::string& directory, shard::EngineMesh mesh, int64_t prefetch = 1,
               int64_t own_group_bytes = int64_t{1} << 30)
      : plain(directory),
        weights(checkpoint::PretrainedWeights::open(*plain.model)),
        engine({plain.model->parameters(), plain.model->blocks()}, mesh, config(prefetch, own_group_bytes)) {
    engine.fill(weights.source());
  }

  static shard::ShardConfig config(int64_t prefetch, int64_t own_group_bytes) {
    shard::ShardConfig result;
    result.prefetch = prefetch;
    result.own_group_bytes = own_group_bytes;
    result.wrap = shard::WrapKind::kBlock;
    return result;
  }

  at::Tensor embed(const std::vector<std::string>& texts) {
    return plain.model->embed(plain.batch(texts, Layout::kPacked), {&engine, std::nullopt});
  }

  std::vector<size_t> leaf_bytes() const {
    std::vector<size_t> bytes;
    for (const auto& parameter : plain.model->parameters()) {
      bytes.push_back(parameter.leaf.storage().nbytes());
    }
    return bytes;
  }
};

at::Tensor scalar_of(const at::Tensor& embeddings) {
  return (embeddings * at::arange(embeddings.numel()).view(embeddings.sizes()).cos()).sum();
}

bool all_zero(const std::vector<size_t>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](size_t b) { return b == 0; });
}

}  // namespace

TEST_CASE("one rank through the engine is the plain model, bit for bit") {  // T32
  const test::PlainModel plain(test::golden_path("tiny_bert"));
  const auto expected = plain.embed(kTexts, Layout::kPacked);
  torch::autograd::backward({scalar_of(expected)}, {});

  const auto world = dist::ProcessGroup::single();
  const auto single = dist::ProcessGroup::single();
  ShardedModel sharded(test::golden_path("tiny_bert"), {*world, *single});
  const auto embeddings = sharded.embed(kTexts);
  torch::autograd::backward({scalar_of(embeddings)}, {});
  sharded.engine.finish_gradients();
  CHECK(at::equal(embeddings, expected));
  const auto local = sharded.engine.local_parameters();
  for (size_t i = 0; i < local.size(); ++i) {
    CHECK(at::equal(local[i].gradient, plain.model->parameters()[i].leaf.grad().reshape({-1})));
  }
}

TEST_CASE("sharded forward and backward equal the plain ones, and leaves are empty outside use") {  // T1, T7
  const test::PlainModel plain(test::golden_path("tiny_bert_dense"));
  const auto expected = plain.embed(kTexts, Layout::kPacked);
  torch::autograd::backward({scalar_of(expected)}, {});
  for (const auto& [prefetch, own_group_bytes, groups] : std::vector<std::tuple<int64_t, int64_t, size_t>>{
           {0, int64_t{1} << 30, 4}, {1, int64_t{1} << 30, 4}, {1, 8192, 10}, {1, 1, 39}}) {
    for (const int64_t ranks : {2, 3}) {
      INFO("prefetch " << prefetch << " own group from " << own_group_bytes << " bytes, ranks " << ranks);
      std::mutex mutex;
      run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
        const auto single = dist::ProcessGroup::single();
        ShardedModel sharded(test::golden_path("tiny_bert_dense"), {*world, *single}, prefetch, own_group_bytes);
        bool starts_empty = all_zero(sharded.leaf_bytes());
        at::Tensor without_gradient;
        {
          const at::NoGradGuard no_grad;
          without_gradient = sharded.embed(kTexts);
        }
        const bool is_empty_after_evaluation = all_zero(sharded.leaf_bytes());
        const auto embeddings = sharded.embed(kTexts);
        // Only the last group stays, for the backward that begins with it.
        auto held = sharded.leaf_bytes();
        const auto& last = sharded.plain.model->blocks().back().parameters;
        for (const int64_t index : last) {
          held[static_cast<size_t>(index)] = 0;
        }
        const bool is_empty_after_forward = all_zero(held);
        torch::autograd::backward({scalar_of(embeddings) * (1.0 / static_cast<double>(ranks))}, {});
        sharded.engine.finish_gradients();
        const bool is_empty_after_backward = all_zero(sharded.leaf_bytes());
        const auto local = sharded.engine.local_parameters();
        const std::scoped_lock lock(mutex);
        CHECK(sharded.engine.groups().size() == groups);
        CHECK(starts_empty);
        CHECK(is_empty_after_evaluation);
        CHECK(is_empty_after_forward);
        CHECK(is_empty_after_backward);
        CHECK(test::max_difference(embeddings, expected) < 1e-6);
        CHECK(at::equal(embeddings, without_gradient));
        for (size_t i = 0; i < local.size(); ++i) {
          const auto whole = plain.model->parameters()[i].leaf.grad().reshape({-1});
          const auto own =
              whole.narrow(0, local[i].layout.first_row * local[i].layout.row_numel, local[i].layout.own_numel());
          CHECK((local[i].gradient - own).norm().item<double>() <= 1e-6 * (1 + whole.norm().item<double>()));
        }
      });
    }
  }
}

TEST_CASE("two forwards before one backward reduce each group once") {
  const test::PlainModel plain(test::golden_path("tiny_bert"));
  const std::vector<std::string> first(kTexts.begin(), kTexts.begin() + 2);
  const std::vector<std::string> second(kTexts.begin() + 2, kTexts.end());
  const auto loss_of = [](const at::Tensor& a, const at::Tensor& b) { return scalar_of(a) + 2 * scalar_of(b); };
  torch::autograd::backward({loss_of(plain.embed(first, Layout::kPacked), plain.embed(second, Layout::kPacked))}, {});
  std::mutex mutex;
  run_ranks(2, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const auto single = dist::ProcessGroup::single();
    ShardedModel sharded(test::golden_path("tiny_bert"), {*world, *single});
    const auto a = sharded.embed(first);
    const auto b = sharded.embed(second);
    const int64_t before = world->counts().reduce_scatters;
    torch::autograd::backward({loss_of(a, b) * 0.5}, {});
    sharded.engine.finish_gradients();
    const auto local = sharded.engine.local_parameters();
    const std::scoped_lock lock(mutex);
    CHECK(world->counts().reduce_scatters - before == static_cast<int64_t>(sharded.engine.groups().size()));
    for (size_t i = 0; i < local.size(); ++i) {
      const auto whole = plain.model->parameters()[i].leaf.grad().reshape({-1});
      const auto own =
          whole.narrow(0, local[i].layout.first_row * local[i].layout.row_numel, local[i].layout.own_numel());
      CHECK((local[i].gradient - own).norm().item<double>() <= 1e-6 * (1 + whole.norm().item<double>()));
    }
  });
}

TEST_CASE("kept unsharded, forwards communicate nothing; afterwards everything is freed") {
  std::mutex mutex;
  run_ranks(2, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const auto single = dist::ProcessGroup::single();
    ShardedModel sharded(test::golden_path("tiny_bert"), {*world, *single});
    int64_t gathers = 0;
    {
      const shard::ShardEngine::KeepUnsharded keep(sharded.engine);
      const at::NoGradGuard no_grad;
      gathers = world->counts().all_gathers;
      for (int64_t i = 0; i <= world->rank(); ++i) {  // an unequal number of forwards
        sharded.embed(kTexts);
      }
      gathers -= world->counts().all_gathers;
    }
    const std::scoped_lock lock(mutex);
    CHECK(gathers == 0);
    CHECK(all_zero(sharded.leaf_bytes()));
  });
}

TEST_CASE("the checksum is that of the file, at any number of ranks, and sees a single bit") {
  std::vector<uint64_t> sums;
  std::mutex mutex;
  for (const int64_t ranks : {1, 2, 3}) {
    run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
      const auto single = dist::ProcessGroup::single();
      ShardedModel sharded(test::golden_path("tiny_bert"), {*world, *single});
      const uint64_t sum = sharded.engine.parameters_checksum();
      auto changed = sharded.engine.local_parameters().front().value;
      if (world->rank() == 0) {
        changed[1].mul_(1.0000001);
      }
      const uint64_t other = sharded.engine.parameters_checksum();
      const std::scoped_lock lock(mutex);
      sums.push_back(sum);
      CHECK(other != sum);
    });
  }
  for (const uint64_t sum : sums) {
    CHECK(sum == sums.front());
  }
}
