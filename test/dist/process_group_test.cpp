#include "dist/process_group.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "dist/autograd_collectives.h"
#include "support/thread_ranks.h"

using stft::dist::ProcessGroup;
using stft::test::run_ranks;

TEST_CASE("collectives at one, two and three ranks") {
  for (const int64_t ranks : {1, 2, 3}) {
    std::atomic<int> checked{0};
    run_ranks(ranks, [&](std::unique_ptr<ProcessGroup> group) {
      const auto rank = static_cast<double>(group->rank());
      auto gathered = at::empty({ranks, 2});
      group->all_gather(gathered, at::full({2}, rank)).wait();
      bool is_right = true;
      for (int64_t r = 0; r < ranks; ++r) {
        is_right = is_right && gathered[r][1].item<double>() == static_cast<double>(r);
      }
      auto scattered = at::empty({2});
      group->reduce_scatter_sum(scattered, at::arange(2 * ranks).to(at::kFloat)).wait();
      is_right = is_right && scattered[1].item<double>() == static_cast<double>(ranks * (2 * group->rank() + 1));
      auto sum = at::full({3}, rank + 1);
      group->all_reduce_sum(sum).wait();
      is_right = is_right && sum[2].item<double>() == static_cast<double>(ranks * (ranks + 1) / 2);
      group->barrier();
      checked += is_right ? 1 : 0;
    });
    CHECK(checked == ranks);
  }
}

TEST_CASE("the gradient of a gather is every rank's gradient of the rows") {
  // Rank r's loss: (r + 1) * sum over all gathered rows of row * weight(row); the owner must get the sum over ranks.
  for (const int64_t ranks : {1, 2, 3}) {
    std::atomic<int> checked{0};
    run_ranks(ranks, [&](std::unique_ptr<ProcessGroup> group) {
      auto local = at::full({2, 1}, static_cast<double>(group->rank())).set_requires_grad(true);
      const auto full = stft::dist::all_gather_with_grad(local, *group);
      const auto weight = at::arange(2 * ranks).to(at::kFloat).view({-1, 1}) + 1;
      const auto loss = (full * weight).sum() * static_cast<double>(group->rank() + 1);
      torch::autograd::backward({loss}, {});
      const double factor = static_cast<double>(ranks * (ranks + 1)) / 2;
      const double expected = factor * static_cast<double>(2 * group->rank() + 2);
      checked += local.grad()[1].item<double>() == expected ? 1 : 0;
    });
    CHECK(checked == ranks);
  }
}

TEST_CASE("counts tell what was sent") {
  const auto group = ProcessGroup::single();
  auto out = at::empty({4});
  group->all_gather(out, at::ones({4})).wait();
  CHECK(out.sum().item<double>() == 4);
  CHECK(group->counts().all_gathers == 1);
  CHECK(group->counts().bytes == 16);
  CHECK_THROWS_AS(group->all_gather(out, at::ones({3})), stft::InternalError);
}

TEST_CASE("a rank that goes away fails the others by name, not by silence") {
  std::atomic<int> failed{0};
  run_ranks(2, [&](std::unique_ptr<ProcessGroup> group) {
    auto value = at::ones({1});
    group->all_reduce_sum(value).wait();
    if (group->rank() == 1) {
      return;  // its group is closed here
    }
    try {
      for (int i = 0; i < 3; ++i) {
        group->all_reduce_sum(value).wait();
      }
    } catch (const stft::SystemError& error) {
      failed += std::string(error.what()).find("all_reduce failed on rank 0") == 0 ? 1 : 0;
    }
  });
  CHECK(failed == 1);
}
