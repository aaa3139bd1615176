#include "model/side_tensor.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <utility>

namespace stft::model {
namespace {

using torch::autograd::variable_list;

// Recomputed blocks run backward passes of their own. Those end at a leaf, which may be reached any number of times.
struct CollectNode : torch::autograd::Node {
  at::Tensor leaf;

  variable_list apply(variable_list&& gradients) override {
    return {std::move(gradients.front()), std::exchange(leaf.mutable_grad(), at::Tensor())};
  }

  void release_variables() override { leaf.mutable_grad() = at::Tensor(); }
};

}  // namespace

WithSide with_side(const at::Tensor& output, const at::Tensor& side) {
  if (!at::GradMode::is_enabled() || !side.requires_grad()) {
    return {output, side};
  }
  auto node = c10::make_intrusive<CollectNode>();
  node->leaf = side.detach().set_requires_grad(true);
  node->set_next_edges({torch::autograd::impl::gradient_edge(output), torch::autograd::impl::gradient_edge(side)});
  WithSide result{output.detach(), node->leaf};
  torch::autograd::set_history(result.output, node);
  return result;
}

}  // namespace stft::model
