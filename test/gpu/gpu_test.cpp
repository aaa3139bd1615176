// What of the engine runs on GPUs. Ranks are threads, each with a GPU of its own.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <thread>
#include <vector>

#include "dist/process_group.h"
#include "dist/rendezvous.h"
#include "shard/shard_group.h"
#include "shard/storage.h"

namespace stft {
namespace {

at::Device gpu(int64_t rank) {
  return {at::kCUDA, static_cast<c10::DeviceIndex>(rank)};
}

bool has_gpus(int64_t wanted) {
  if (c10::cuda::device_count() >= wanted) {
    return true;
  }
  WARN("no GPU to test with: " << wanted << " wanted, " << int{c10::cuda::device_count()} << " there");
  return false;
}

// Runs `body` on two ranks and returns how many returned true.
int count_right(const std::function<bool(dist::ProcessGroup&)>& body) {
  const auto rendezvous = dist::Rendezvous::in_process();
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const c10::cuda::CUDAGuard guard(gpu(rank));
      dist::ProcessGroup::Options options;
      options.name = "gpu";
      options.rank = rank;
      options.world_size = 2;
      options.timeout_s = 60;
      right += body(*dist::ProcessGroup::over_nccl(rendezvous, options)) ? 1 : 0;
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  return right;
}

}  // namespace

TEST_CASE("the storage of a GPU tensor is freed and filled again under its views") {
  if (!has_gpus(1)) {
    return;
  }
  const auto tensor = at::ones({1024}, at::TensorOptions().device(gpu(0)));
  const auto view = tensor.narrow(0, 512, 512);
  shard::resize_storage(tensor, 0);
  CHECK(tensor.storage().nbytes() == 0);
  shard::resize_storage(tensor, 4096);
  tensor.fill_(3);
  CHECK(view.sum().item<double>() == 3 * 512);
}

TEST_CASE("collectives on GPU and CPU tensors of one group") {
  if (!has_gpus(2)) {
    return;
  }
  CHECK(count_right([](dist::ProcessGroup& group) {
          const auto rank = static_cast<double>(group.rank());
          bool is_right = true;
          for (const at::Device device : {gpu(group.rank()), at::Device(at::kCPU)}) {
            const auto options = at::TensorOptions().dtype(at::kFloat).device(device);
            auto gathered = at::empty({2, 3}, options);
            group.all_gather(gathered, at::full({3}, rank, options)).wait();
            auto scattered = at::empty({2}, options);
            group.reduce_scatter_sum(scattered, at::arange(4, options)).wait();
            auto sum = at::full({3}, rank + 1, options);
            group.all_reduce_sum(sum).wait();
            is_right = is_right && gathered[1][2].item<double>() == 1 && gathered[0][0].item<double>() == 0 &&
                       scattered[1].item<double>() == 2 * (2 * rank + 1) && sum[0].item<double>() == 3;
          }
          group.barrier();
          return is_right;
        }) == 2);
}

TEST_CASE("a sharded group on GPUs gathers its rows and sums its gradients") {
  if (!has_gpus(2)) {
    return;
  }
  CHECK(count_right([](dist::ProcessGroup& group) {
          model::Parameter weight;
          weight.name = "weight";
          weight.shape = {5, 3};
          const auto single = dist::ProcessGroup::single();
          shard::MemoryMeter meter;
          shard::ShardGroup shards("group", {&weight},
                                   {.shard = group, .replicate = *single, .device = gpu(group.rank()), .meter = meter});
          auto local = shards.local_parameters().front();
          local.value.copy_(at::arange(local.layout.own_numel()) + local.layout.first_row * 3);
          shards.finish_unshard();
          const bool is_whole = at::equal(weight.leaf.detach().cpu(), at::arange(15, at::kFloat).view({5, 3}));
          weight.leaf.mutable_grad() = at::full_like(weight.leaf.detach(), static_cast<double>(group.rank() + 1));
          shards.start_reduce();
          shards.reshard();
          shards.finish_reduce();
          local = shards.local_parameters().front();
          return is_whole && weight.leaf.storage().nbytes() == 0 && at::all(local.gradient == 3).item<bool>();
        }) == 2);
}

}  // namespace stft
