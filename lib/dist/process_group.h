// A group of ranks and its collectives, over c10d backends (Gloo for CPU tensors, NCCL for GPU tensors). Only lib/dist
// names a backend.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dist/rendezvous.h"

namespace stft::dist {

// What a rank's collectives cost. Bytes are those of this rank's input (all-gather: of its output).
struct CollectiveCounts {
  int64_t all_gathers = 0;
  int64_t reduce_scatters = 0;
  int64_t all_reduces = 0;
  int64_t bytes = 0;

  CollectiveCounts& operator+=(const CollectiveCounts& other);
  CollectiveCounts operator-(const CollectiveCounts& earlier) const;
};

// A collective under way. The tensors it works on must live until wait() has returned; it keeps references to them.
class PendingCollective {
 public:
  PendingCollective();
  PendingCollective(PendingCollective&&) noexcept;
  PendingCollective& operator=(PendingCollective&&) noexcept;
  ~PendingCollective();

  // Blocks until the collective is done (on a GPU tensor: makes the current stream wait for it). Throws SystemError
  // naming the operation and the rank when a peer died or the timeout passed. Waiting on an empty or finished
  // collective returns at once.
  void wait();

  struct Impl;  // defined for lib/dist only

 private:
  friend class ProcessGroup;
  std::unique_ptr<Impl> impl_;
};

// Collectives must be issued in the same order by all ranks of the group. With one rank every collective is a copy and
// there is no backend.
class ProcessGroup {
 public:
  // A group of one.
  static std::unique_ptr<ProcessGroup> single();

  // Collective: every rank of `world_size` calls it with the same `name`. `host` is the address that this rank's Gloo
  // device listens on ("127.0.0.1" on one machine). Throws SystemError when the peers do not come within `timeout_s`.
  // SIGPIPE, where it has its default action, is ignored in this process from then on: a dead peer is an error here.
  struct Options {
    std::string name;
    int64_t rank = 0;
    int64_t world_size = 1;
    std::string host = "127.0.0.1";
    double timeout_s = 1800;
  };
  static std::unique_ptr<ProcessGroup> over_gloo(const Rendezvous& rendezvous, const Options& options);
  // Collective: the same with NCCL for GPU tensors; CPU tensors (flags, counts) still go over Gloo. One GPU per rank.
  // Throws UserError in a build without CUDA, SystemError without a GPU.
  static std::unique_ptr<ProcessGroup> over_nccl(const Rendezvous& rendezvous, const Options& options);

  // Collective over `ranks` (of this group, ascending, this rank among them): a group of those alone, with the same
  // backends and timeout. Groups that are made at the same time need different names.
  std::unique_ptr<ProcessGroup> subgroup(const std::string& name, const std::vector<int64_t>& ranks) const;

  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  // Of this rank so far; the copies within a group of one are not counted.
  const CollectiveCounts& counts() const { return counts_; }

  // Collective: output (size * numel of input, contiguous) gets the inputs in rank order. The input may be this rank's
  // own slice of the output.
  PendingCollective all_gather(at::Tensor output, at::Tensor input);
  // Collective: input (size * numel of output) is summed over ranks; output gets this rank's slice when it is waited
  // for. What the input holds afterwards is undefined.
  PendingCollective reduce_scatter_sum(at::Tensor output, at::Tensor input);
  // Collective: in place, the sum over ranks.
  PendingCollective all_reduce_sum(at::Tensor tensor);
  // Collective: returns when all ranks have come.
  void barrier();

  struct Impl;  // defined for lib/dist only

 private:
  ProcessGroup(std::unique_ptr<Impl> impl, int64_t rank, int64_t size);
  struct Meeting;
  static std::unique_ptr<ProcessGroup> over(const Meeting& meeting, const Options& options);

  void count(int64_t CollectiveCounts::*kind, const at::Tensor& tensor);

  std::unique_ptr<Impl> impl_;  // null for a group of one
  int64_t rank_ = 0;
  int64_t size_ = 1;
  CollectiveCounts counts_;
};

// Collective: every rank's integers, as many on each, in rank order.
std::vector<std::vector<int64_t>> gather_integers(ProcessGroup& group, const std::vector<int64_t>& own);

// Collective: every rank's text (any bytes), in rank order.
std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& own);

// Collective: rank 0's text.
std::string broadcast_text(ProcessGroup& group, const std::string& of_first);

}  // namespace stft::dist
