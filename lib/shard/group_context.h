// What the groups of one engine have in common.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "dist/process_group.h"
#include "shard/packed_form.h"

namespace stft::shard {

// Bytes that come and go: the gathered parameters and the buffers they pass through.
class MemoryMeter {
 public:
  void add(int64_t bytes) {
    now_ += bytes;
    peak_ = is_peak_noted_ ? std::max(peak_, now_) : peak_;
  }
  // Whether what is added from now on counts for the peak (default).
  void note_peak(bool is_noted) { is_peak_noted_ = is_noted; }
  int64_t peak() const { return peak_; }

 private:
  int64_t now_ = 0;
  int64_t peak_ = 0;
  bool is_peak_noted_ = true;
};

// Everything is borrowed. `shard` cuts the parameters, `replicate` joins the ranks that hold the same rows.
struct GroupContext {
  dist::ProcessGroup& shard;
  dist::ProcessGroup& replicate;
  dist::ProcessGroup* part = nullptr;   // ranks of `shard` that keep one gathered copy between them after the forward
  at::Device device = at::kCPU;         // of the leaves, the collectives and the gradients before their reduction
  bool is_offloaded = false;            // shards and their gradients are in host memory, apart from the device's
  at::ScalarType compute = at::kFloat;  // of the leaves
  at::ScalarType reduce = at::kFloat;   // of the gradients' reduction
  MemoryMeter& meter;
  const PackedForms* packed = nullptr;  // null: no parameter is packed

  // Of the shards and their gradients.
  at::Device home() const { return is_offloaded ? at::Device(at::kCPU) : device; }
};

// [Note: shard tensors]
// shard     the rows of a parameter that this rank owns, in its stored dtype (fp32 when trainable), at home(); the
//           optimizer's truth; of a packed parameter rows of bytes. The shards of a group lie in one flat buffer, each
//           padded to chunk_rows.
// leaf      the whole parameter that the model computes with (model::Parameter::leaf), in `compute`. It is made once
//           and keeps its storage object; while the group is sharded that storage has zero bytes. Autograd's saved
//           views stay valid because gathering fills the same storage again, without touching the version counter.
// resident  with a shard group of one rank, nothing to cast and nothing offloaded, the leaf is the shard and stays.

}  // namespace stft::shard
