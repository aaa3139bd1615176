#include "dist/process_group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "base/error.h"
#include "dist/process_group_impl.h"
#include "dist/rendezvous_impl.h"

namespace stft::dist {

CollectiveCounts& CollectiveCounts::operator+=(const CollectiveCounts& other) {
  all_gathers += other.all_gathers;
  reduce_scatters += other.reduce_scatters;
  all_reduces += other.all_reduces;
  bytes += other.bytes;
  return *this;
}

CollectiveCounts CollectiveCounts::operator-(const CollectiveCounts& earlier) const {
  return {all_gathers - earlier.all_gathers, reduce_scatters - earlier.reduce_scatters,
          all_reduces - earlier.all_reduces, bytes - earlier.bytes};
}

struct PendingCollective::Impl {
  c10::intrusive_ptr<c10d::Work> work;
  std::vector<at::Tensor> held;
  const char* operation = "";
  int64_t rank = 0;
};

PendingCollective::PendingCollective() = default;
PendingCollective::PendingCollective(PendingCollective&&) noexcept = default;
PendingCollective& PendingCollective::operator=(PendingCollective&&) noexcept = default;
PendingCollective::~PendingCollective() = default;

namespace {

// The reason within a backend's message: without the source position before it, the advice and the stack behind it.
std::string reason_of(const char* text) {
  std::string reason(text);
  reason.resize(std::min(reason.find('\n'), reason.size()));
  if (reason.starts_with('[')) {
    const size_t end = reason.find("] ");
    reason.erase(0, end == std::string::npos ? 0 : end + 2);
  }
  reason.resize(std::min(reason.find(". "), reason.size()));
  return reason;
}

[[noreturn]] void throw_collective(const char* operation, int64_t rank, const std::exception& cause) {
  throw CollectiveError(fmt::format("{} failed on rank {}: {}", operation, rank, reason_of(cause.what())));
}

}  // namespace

void PendingCollective::wait() {
  if (impl_ == nullptr) {
    return;
  }
  const auto impl = std::move(impl_);
  try {
    impl->work->wait();
  } catch (const std::exception& cause) {
    throw_collective(impl->operation, impl->rank, cause);
  }
}

c10d::Backend& ProcessGroup::Impl::backend_of(const at::Tensor& tensor) const {
  if (tensor.is_cpu()) {
    return *of_cpu;
  }
  STFT_CHECK(of_gpu != nullptr, "a collective on a GPU tensor in a group of CPU tensors");
  return *of_gpu;
}

ProcessGroup::ProcessGroup(std::unique_ptr<Impl> impl, int64_t rank, int64_t size)
    : impl_(std::move(impl)), rank_(rank), size_(size) {}

ProcessGroup::~ProcessGroup() = default;

std::unique_ptr<ProcessGroup> ProcessGroup::single() {
  return std::unique_ptr<ProcessGroup>(new ProcessGroup(nullptr, 0, 1));
}

std::unique_ptr<ProcessGroup> ProcessGroup::over_gloo(const Rendezvous& rendezvous, const Options& options) {
  return over({rendezvous.impl().store, false}, options);
}

std::unique_ptr<ProcessGroup> ProcessGroup::over_nccl(const Rendezvous& rendezvous, const Options& options) {
  return over({rendezvous.impl().store, true}, options);
}

std::unique_ptr<ProcessGroup> ProcessGroup::over(const Meeting& meeting, const Options& options) {
  STFT_CHECK(options.rank >= 0 && options.rank < options.world_size, "a rank outside its group");
  const auto store = [&](const char* suffix) {
    return c10::make_intrusive<c10d::PrefixStore>(options.name + suffix, meeting.store);
  };
  auto impl = std::make_unique<Impl>();
  impl->meeting = meeting;
  impl->options = options;
  try {
    if (meeting.has_nccl) {
      impl->of_gpu = make_nccl_backend(store("/nccl"), options);
    }
    if (options.world_size == 1) {
      return single();
    }
    impl->of_cpu = make_gloo_backend(store(""), options);
  } catch (const UserError&) {
    throw;
  } catch (const SystemError&) {
    throw;
  } catch (const std::exception& cause) {
    throw_collective(("joining process group '" + options.name + "'").c_str(), options.rank, cause);
  }
  return std::unique_ptr<ProcessGroup>(new ProcessGroup(std::move(impl), options.rank, options.world_size));
}

std::unique_ptr<ProcessGroup> ProcessGroup::subgroup(const std::string& name, const std::vector<int64_t>& ranks) const {
  const auto place = std::find(ranks.begin(), ranks.end(), rank_);
  STFT_CHECK(place != ranks.end(), "a rank makes a group that it is not in");
  if (ranks.size() == 1) {
    return single();
  }
  Options options = impl_->options;
  options.name += "/" + name;
  options.rank = place - ranks.begin();
  options.world_size = static_cast<int64_t>(ranks.size());
  return over(impl_->meeting, options);
}

// Runs `start`, which issues the collective, and keeps its tensors alive until it is waited for.
template <typename Start>
std::unique_ptr<PendingCollective::Impl> issue(const char* operation, int64_t rank, std::vector<at::Tensor> held,
                                               Start&& start) {
  try {
    auto work = start();
    return std::make_unique<PendingCollective::Impl>(
        PendingCollective::Impl{std::move(work), std::move(held), operation, rank});
  } catch (const std::exception& cause) {
    throw_collective(operation, rank, cause);
  }
}

void ProcessGroup::count(int64_t CollectiveCounts::*kind, const at::Tensor& tensor) {
  if (size_ > 1) {
    counts_.*kind += 1;
    counts_.bytes += static_cast<int64_t>(tensor.nbytes());
  }
}

PendingCollective ProcessGroup::all_gather(at::Tensor output, at::Tensor input) {
  STFT_CHECK(output.numel() == size_ * input.numel(), "all_gather: sizes do not fit");
  count(&CollectiveCounts::all_gathers, output);
  PendingCollective pending;
  output = output.view({-1});
  input = input.view({-1});
  if (impl_ != nullptr) {
    pending.impl_ = issue("all_gather", rank_, {output, input},
                          [&] { return impl_->backend_of(output).all_gather_single(output, input); });
  } else if (output.data_ptr() != input.data_ptr()) {
    output.copy_(input);
  }
  return pending;
}

PendingCollective ProcessGroup::reduce_scatter_sum(at::Tensor output, at::Tensor input) {
  STFT_CHECK(input.numel() == size_ * output.numel(), "reduce_scatter: sizes do not fit");
  count(&CollectiveCounts::reduce_scatters, input);
  PendingCollective pending;
  output = output.view({-1});
  input = input.view({-1});
  if (impl_ != nullptr) {
    pending.impl_ = issue("reduce_scatter", rank_, {output, input},
                          [&] { return impl_->backend_of(output).reduce_scatter_single(output, input); });
  } else {
    output.copy_(input);
  }
  return pending;
}

PendingCollective ProcessGroup::all_reduce_sum(at::Tensor tensor) {
  count(&CollectiveCounts::all_reduces, tensor);
  PendingCollective pending;
  if (impl_ != nullptr) {
    std::vector<at::Tensor> tensors{tensor};
    pending.impl_ = issue("all_reduce", rank_, {tensor}, [&] { return impl_->backend_of(tensor).allreduce(tensors); });
  }
  return pending;
}

std::vector<std::vector<int64_t>> gather_integers(ProcessGroup& group, const std::vector<int64_t>& own) {
  const auto count = static_cast<int64_t>(own.size());
  auto input = at::empty({count}, at::kLong);
  std::copy(own.begin(), own.end(), input.data_ptr<int64_t>());
  auto output = at::empty({group.size() * count}, at::kLong);
  group.all_gather(output, input).wait();
  std::vector<std::vector<int64_t>> of_ranks;
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    const int64_t* first = output.data_ptr<int64_t>() + rank * count;
    of_ranks.emplace_back(first, first + count);
  }
  return of_ranks;
}

void ProcessGroup::barrier() {
  auto nothing = at::zeros({1}, at::kInt);
  all_reduce_sum(nothing).wait();
}

}  // namespace stft::dist
