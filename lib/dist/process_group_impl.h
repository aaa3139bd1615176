// Private to lib/dist: the backends behind a ProcessGroup.
#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "dist/process_group.h"

namespace stft::dist {

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

// Collective: every rank of `options.world_size` makes its end. `store` has a prefix of its own for this backend.
// c10d's exceptions pass through.
BackendPointer make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroup::Options& options);

// The same over NCCL. Throws UserError in a build without CUDA, SystemError when there is no GPU.
BackendPointer make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroup::Options& options);

// Where the ranks of a group meet, and what they talk over.
struct ProcessGroup::Meeting {
  c10::intrusive_ptr<c10d::Store> store;
  bool has_nccl = false;
};

// A backend works on the tensors of its own memory only.
struct ProcessGroup::Impl {
  Meeting meeting;
  Options options;
  BackendPointer of_cpu;
  BackendPointer of_gpu;  // null in a group over Gloo alone

  c10d::Backend& backend_of(const at::Tensor& tensor) const;
};

}  // namespace stft::dist
