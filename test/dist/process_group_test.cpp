#include "dist/process_group.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>

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

TEST_CASE("a peer's closed socket is an error, not the end of the process") {
  std::signal(SIGPIPE, SIG_DFL);
  run_ranks(2, [](std::unique_ptr<ProcessGroup> group) { group->barrier(); });
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  ::close(ends[0]);
  CHECK(::write(ends[1], "x", 1) == -1);  // with SIGPIPE's default action this process would end here
  CHECK(errno == EPIPE);
  ::close(ends[1]);
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
  CHECK(group->counts().all_gathers == 0);  // a copy
  CHECK(group->counts().bytes == 0);
  CHECK_THROWS_AS(group->all_gather(out, at::ones({3})), stft::InternalError);
  std::atomic<int> right{0};
  run_ranks(2, [&](std::unique_ptr<ProcessGroup> pair) {
    auto both = at::empty({8});
    pair->all_gather(both, at::ones({4})).wait();
    const auto before = pair->counts();
    pair->all_reduce_sum(both).wait();
    pair->reduce_scatter_sum(at::empty({4}), both).wait();
    const auto later = pair->counts() - before;
    right += before.all_gathers == 1 && before.bytes == 32 && later.all_gathers == 0 && later.all_reduces == 1 &&
                     later.reduce_scatters == 1 && later.bytes == 64
                 ? 1
                 : 0;
  });
  CHECK(right == 2);
}

TEST_CASE("groups within a group: neighbours, and one of each neighbourhood") {
  std::atomic<int> right{0};
  run_ranks(4, [&](std::unique_ptr<ProcessGroup> world) {
    const int64_t rank = world->rank();
    const int64_t first = rank / 2 * 2;
    const auto neighbours = world->subgroup("neighbours-" + std::to_string(first), {first, first + 1});
    const auto across = world->subgroup("across-" + std::to_string(rank % 2), {rank % 2, rank % 2 + 2});
    const auto alone = world->subgroup("alone", {rank});
    auto near = at::full({1}, static_cast<double>(rank));
    auto far = near.clone();
    auto own = near.clone();
    neighbours->all_reduce_sum(near).wait();
    across->all_reduce_sum(far).wait();
    alone->all_reduce_sum(own).wait();
    const bool is_right = near.item<double>() == static_cast<double>(2 * first + 1) &&
                          far.item<double>() == static_cast<double>(2 * (rank % 2) + 2) &&
                          own.item<double>() == static_cast<double>(rank) && neighbours->rank() == rank % 2 &&
                          across->rank() == rank / 2 && alone->size() == 1;
    right += is_right ? 1 : 0;
  });
  CHECK(right == 4);
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
