// Collectives that autograd runs through.
#pragma once

#include <ATen/core/Tensor.h>

#include "dist/process_group.h"

namespace stft::dist {

// Collective: every rank's `local` (equal shapes [c, ...]) stacked in rank order: [size * c, ...]. Its backward is a
// reduce-scatter (sum) of the gradient, so when every rank's loss is its own part of one global loss, each rank gets
// the whole gradient of its rows. All ranks must run the backward, or none. `group` must outlive the graph.
at::Tensor all_gather_with_grad(const at::Tensor& local, ProcessGroup& group);

}  // namespace stft::dist
