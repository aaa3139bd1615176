#include "dist/autograd_collectives.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

namespace stft::dist {
namespace {

std::vector<int64_t> with_leading(const at::Tensor& tensor, int64_t rows) {
  auto sizes = tensor.sizes().vec();
  sizes[0] = rows;
  return sizes;
}

struct AllGather : torch::autograd::Function<AllGather> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& local, ProcessGroup* group) {
    context->saved_data["group"] = reinterpret_cast<int64_t>(group);
    const auto input = local.contiguous();
    auto output = at::empty(with_leading(input, input.size(0) * group->size()), input.options());
    group->all_gather(output, input).wait();
    return output;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* group = reinterpret_cast<ProcessGroup*>(context->saved_data["group"].toInt());
    // A copy: the reduction works in it, and others may hold the gradient.
    const auto full = gradients[0].clone(at::MemoryFormat::Contiguous);
    auto local = at::empty(with_leading(full, full.size(0) / group->size()), full.options());
    group->reduce_scatter_sum(local, full).wait();
    return {local, at::Tensor()};
  }
};

}  // namespace

at::Tensor all_gather_with_grad(const at::Tensor& local, ProcessGroup& group) {
  if (group.size() == 1) {
    return local;
  }
  return AllGather::apply(local, &group);
}

}  // namespace stft::dist
