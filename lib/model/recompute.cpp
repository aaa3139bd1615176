#include "model/recompute.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <utility>

#include "base/error.h"

namespace stft::model {
namespace {

using torch::autograd::variable_list;

// Stands in the graph for all nodes of the body. Its edge leads to the input; the leaves are reached by the backward
// pass inside of apply.
struct RecomputeNode : torch::autograd::Node {
  BlockBody body;
  torch::autograd::SavedVariable saved_input;

  variable_list apply(variable_list&& gradients) override {
    STFT_CHECK(!at::GradMode::is_enabled(), "a recomputed block has no second derivative");
    STFT_CHECK(torch::autograd::Engine::get_default_engine().is_checkpoint_valid(),
               "a recomputed block passes gradients to leaves only through backward()");
    const at::Tensor original = saved_input.unpack();
    if (!gradients.front().defined()) {
      return {at::Tensor()};
    }
    at::Tensor input = original.detach();
    input.set_requires_grad(original.requires_grad());
    at::Tensor output;
    {
      const at::AutoGradMode with_gradient(true);
      output = body(input);
    }
    if (!output.requires_grad()) {
      return {at::Tensor()};
    }
    torch::autograd::backward({std::move(output)}, {std::move(gradients.front())});
    return {input.grad()};
  }

  void release_variables() override {
    saved_input.reset_data();
    body = nullptr;
  }
};

}  // namespace

at::Tensor recomputed_in_backward(BlockBody body, const at::Tensor& input, bool reads_leaves) {
  if (!at::GradMode::is_enabled() || !(input.requires_grad() || reads_leaves)) {
    return body(input);
  }
  at::Tensor output;
  {
    const at::NoGradGuard no_grad;
    output = body(input).detach();
  }
  auto node = c10::make_intrusive<RecomputeNode>();
  node->body = std::move(body);
  node->saved_input = torch::autograd::SavedVariable(input, false);
  // No edge leads anywhere from an input without gradient; the output requires one all the same.
  node->set_next_edges({torch::autograd::impl::gradient_edge(input)});
  torch::autograd::set_history(output, node);
  return output;
}

}  // namespace stft::model
