#include "shard/shard_engine.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <utility>

#include "base/error.h"
#include "shard/checksum.h"

namespace stft::shard {
namespace {

using torch::autograd::variable_list;

// An identity in the graph that calls back when the gradient passes: everything that was computed from its output has
// had its backward by then (nodes that were created later run first).
struct PassMarker : torch::autograd::Node {
  std::function<void()> on_pass;
  variable_list apply(variable_list&& gradients) override {
    on_pass();
    return std::move(gradients);
  }
};

at::Tensor mark(const at::Tensor& input, std::function<void()> on_pass) {
  auto node = c10::make_intrusive<PassMarker>();
  node->on_pass = std::move(on_pass);
  node->set_next_edges({torch::autograd::impl::gradient_edge(input)});
  at::Tensor output = input.detach();
  torch::autograd::set_history(output, node);
  return output;
}

}  // namespace

ShardEngine::ShardEngine(model::SentenceModel& model, EngineMesh mesh, const ShardConfig& config)
    : model_(model), mesh_(mesh), prefetches_(config.prefetch > 0) {
  place_of_parameter_.resize(model.parameters().size());
  for (const model::Block& block : model.blocks()) {
    std::vector<model::Parameter*> parameters;
    for (const int64_t index : block.parameters) {
      place_of_parameter_[static_cast<size_t>(index)] = {groups_.size(), static_cast<int64_t>(parameters.size())};
      parameters.push_back(&model.parameters()[static_cast<size_t>(index)]);
    }
    groups_.push_back(std::make_unique<ShardGroup>(block.name, std::move(parameters), mesh.shard, mesh.replicate));
    is_read_by_backward_.push_back(block.is_read_by_backward);
  }
  pending_backwards_.assign(groups_.size(), 0);
}

ShardEngine::~ShardEngine() = default;

void ShardEngine::fill(const RowSource& source) {
  const at::NoGradGuard no_grad;
  for (auto& group : groups_) {
    for (const LocalParameter& local : group->local_parameters()) {
      if (local.layout.own_rows > 0) {
        source(*local.parameter, local.layout, local.value);
      }
    }
  }
}

at::Tensor ShardEngine::before_block(int64_t block, at::Tensor input) {
  const auto index = static_cast<size_t>(block);
  groups_[index]->finish_unshard();
  if (prefetches_ && index + 1 < groups_.size()) {
    groups_[index + 1]->start_unshard();
  }
  if (at::GradMode::is_enabled()) {
    pending_backwards_[index] += 1;
    if (input.defined() && input.requires_grad()) {
      return mark(input, [this, index] { post_backward(index); });
    }
  }
  return input;
}

at::Tensor ShardEngine::after_block(int64_t block, at::Tensor output) {
  const auto index = static_cast<size_t>(block);
  const bool has_backward = at::GradMode::is_enabled() && output.requires_grad();
  // The last group's backward comes next, so freeing it would only mean gathering it again.
  const bool is_needed_next = has_backward && index + 1 == groups_.size();
  if (!keeps_unsharded_ && !is_needed_next) {
    groups_[index]->reshard();
  }
  if (has_backward) {
    output.register_hook([this, index](const at::Tensor& gradient) {
      pre_backward(index);
      return gradient;
    });
  }
  return output;
}

void ShardEngine::pre_backward(size_t group) {
  if (!std::exchange(is_callback_queued_, true)) {
    torch::autograd::Engine::get_default_engine().queue_callback([this] { final_callback(); });
  }
  if (is_read_by_backward_[group]) {
    groups_[group]->finish_unshard();
  }
  if (prefetches_ && group > 0 && is_read_by_backward_[group - 1]) {
    groups_[group - 1]->start_unshard();
  }
}

void ShardEngine::post_backward(size_t group) {
  if (!keeps_unsharded_) {
    groups_[group]->reshard();
  }
  pending_backwards_[group] -= 1;
  if (pending_backwards_[group] == 0 && has_gradient_sync_) {
    if (group + 1 < groups_.size()) {
      groups_[group + 1]->finish_reduce();  // at most two reductions are under way
    }
    groups_[group]->start_reduce();
  }
}

// At the end of the backward: groups whose input had no gradient (token ids) got no marker.
void ShardEngine::final_callback() {
  is_callback_queued_ = false;
  for (size_t group = groups_.size(); group-- > 0;) {
    if (pending_backwards_[group] > 0) {
      pending_backwards_[group] = 1;
      post_backward(group);
    }
  }
}

void ShardEngine::finish_gradients() {
  for (auto& group : groups_) {
    group->finish_reduce();
    if (!keeps_unsharded_) {
      group->reshard();
    }
  }
}

void ShardEngine::clear_gradients() {
  for (auto& group : groups_) {
    group->clear_gradients();
  }
}

std::vector<LocalParameter> ShardEngine::local_parameters() {
  std::vector<LocalParameter> result(place_of_parameter_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    auto of_group = groups_[g]->local_parameters();
    for (size_t i = 0; i < place_of_parameter_.size(); ++i) {
      if (place_of_parameter_[i].first == g) {
        result[i] = std::move(of_group[static_cast<size_t>(place_of_parameter_[i].second)]);
      }
    }
  }
  return result;
}

at::Tensor ShardEngine::gather(int64_t index) {
  const auto [group, place] = place_of_parameter_.at(static_cast<size_t>(index));
  return groups_[group]->gather(place);
}

ShardEngine::KeepUnsharded::KeepUnsharded(ShardEngine& engine) : engine_(engine) {
  STFT_CHECK(!engine.keeps_unsharded_, "the groups are kept unsharded already");
  for (auto& group : engine.groups_) {
    group->start_unshard();
  }
  for (auto& group : engine.groups_) {
    group->finish_unshard();
  }
  engine.keeps_unsharded_ = true;
}

ShardEngine::KeepUnsharded::~KeepUnsharded() {
  engine_.keeps_unsharded_ = false;
  for (auto& group : engine_.groups_) {
    group->reshard();
  }
}

uint64_t ShardEngine::parameters_checksum() {
  uint64_t sum = 0;
  for (const LocalParameter& local : local_parameters()) {
    sum += checksum_rows(*local.parameter, local.layout, local.value);
  }
  auto total = at::empty({1}, at::kLong);
  total.fill_(static_cast<int64_t>(sum));
  mesh_.shard.all_reduce_sum(total).wait();
  return static_cast<uint64_t>(total.item<int64_t>());
}

}  // namespace stft::shard
