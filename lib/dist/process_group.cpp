#include "dist/process_group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
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
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  std::vector<at::Tensor> held;
  const char* operation = "";
  int64_t rank = 0;
  at::Tensor result;  // where it is not written to directly: filled from `result_source` at the end
  at::Tensor result_source;
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

[[noreturn]] void throw_collective(const char* operation, int64_t rank, const char* cause) {
  throw CollectiveError(fmt::format("{} failed on rank {}: {}", operation, rank, reason_of(cause)));
}

}  // namespace

void PendingCollective::wait() {
  if (impl_ == nullptr) {
    return;
  }
  const auto impl = std::move(impl_);
  std::optional<std::string> failure;
  for (const auto& work : impl->works) {
    try {
      work->wait();
    } catch (const std::exception& cause) {
      // The others are waited for as well: they write to the caller's memory.
      failure = failure ? failure : cause.what();
    }
  }
  if (failure) {
    throw_collective(impl->operation, impl->rank, failure->c_str());
  }
  if (impl->result.defined()) {
    const at::NoGradGuard no_grad;
    impl->result.copy_(impl->result_source);
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
    throw_collective(("joining process group '" + options.name + "'").c_str(), options.rank, cause.what());
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
  auto pending = std::make_unique<PendingCollective::Impl>();
  pending->held = std::move(held);
  pending->operation = operation;
  pending->rank = rank;
  try {
    start(pending->works);
  } catch (const std::exception& cause) {
    throw_collective(operation, rank, cause.what());
  }
  return pending;
}

// Gloo's own all-gather and reduce-scatter go through copies of everything, the latter also through an all-reduce.
// Broadcasts and reductions of the ranks' parts work in place and move no more than has to be moved (47 MB over
// loopback, 2 ranks: 20 ms instead of 61, and 43 instead of 72). Many small parts would cost more than they save.
constexpr int64_t kMostParts = 16;

bool goes_in_parts(const at::Tensor& tensor, int64_t ranks) {
  return tensor.is_cpu() && tensor.numel() > 0 && ranks <= kMostParts;
}

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

// One collective a rank's part of `whole`: `start` gets the part and its rank.
template <typename Start>
void issue_parts(const at::Tensor& whole, int64_t ranks, Works& works, Start&& start) {
  const int64_t part = whole.numel() / ranks;
  for (int64_t root = 0; root < ranks; ++root) {
    std::vector<at::Tensor> tensors{whole.narrow(0, root * part, part)};
    works.push_back(start(tensors, root));
  }
}

void broadcast_parts(c10d::Backend& backend, const at::Tensor& whole, int64_t ranks, Works& works) {
  issue_parts(whole, ranks, works, [&backend](std::vector<at::Tensor>& part, int64_t root) {
    return backend.broadcast(part, {.rootRank = root});
  });
}

void reduce_parts(c10d::Backend& backend, const at::Tensor& whole, int64_t ranks, Works& works) {
  issue_parts(whole, ranks, works, [&backend](std::vector<at::Tensor>& part, int64_t root) {
    return backend.reduce(part, {.rootRank = root});
  });
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
    pending.impl_ = issue("all_gather", rank_, {output, input}, [&](Works& works) {
      c10d::Backend& backend = impl_->backend_of(output);
      if (!goes_in_parts(output, size_)) {
        works.push_back(backend.all_gather_single(output, input));
        return;
      }
      auto own = output.narrow(0, rank_ * input.numel(), input.numel());
      if (own.data_ptr() != input.data_ptr()) {
        own.copy_(input);
      }
      broadcast_parts(backend, output, size_, works);
    });
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
    const bool is_in_parts = goes_in_parts(input, size_);
    pending.impl_ = issue("reduce_scatter", rank_, {output, input}, [&](Works& works) {
      c10d::Backend& backend = impl_->backend_of(output);
      if (is_in_parts) {
        reduce_parts(backend, input, size_, works);
      } else {
        works.push_back(backend.reduce_scatter_single(output, input));
      }
    });
    if (is_in_parts) {
      pending.impl_->result = output;
      pending.impl_->result_source = input.narrow(0, rank_ * output.numel(), output.numel());
    }
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
    pending.impl_ = issue("all_reduce", rank_, {tensor},
                          [&](Works& works) { works.push_back(impl_->backend_of(tensor).allreduce(tensors)); });
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

std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& own) {
  const auto sizes = gather_integers(group, {static_cast<int64_t>(own.size())});
  int64_t longest = 1;
  for (const auto& size : sizes) {
    longest = std::max(longest, size.front());
  }
  auto input = at::zeros({longest}, at::kByte);
  std::memcpy(input.data_ptr(), own.data(), own.size());
  auto output = at::empty({group.size() * longest}, at::kByte);
  group.all_gather(output, input).wait();
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    const auto* begin = output.data_ptr<uint8_t>() + static_cast<int64_t>(rank) * longest;
    texts.emplace_back(begin, begin + sizes[rank].front());
  }
  return texts;
}

std::string broadcast_text(ProcessGroup& group, const std::string& of_first) {
  return gather_texts(group, group.rank() == 0 ? of_first : std::string()).front();
}

void ProcessGroup::barrier() {
  auto nothing = at::zeros({1}, at::kInt);
  all_reduce_sum(nothing).wait();
}

}  // namespace stft::dist
