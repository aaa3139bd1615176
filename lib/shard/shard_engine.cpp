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
    const size_t first = groups_.size();
    std::vector<int64_t> small;
    for (const int64_t index : block.parameters) {
      const int64_t bytes =
          model.parameters()[static_cast<size_t>(index)].numel() * static_cast<int64_t>(sizeof(float));
      if (bytes >= config.own_group_bytes) {
        add_group(block.name, {index});
      } else {
        small.push_back(index);
      }
    }
    if (!small.empty()) {
      add_group(block.name, small);
    }
    blocks_.push_back({first, groups_.size(), block.is_read_by_backward, 0});
  }
}

void ShardEngine::add_group(const std::string& name, const std::vector<int64_t>& parameters) {
  std::vector<model::Parameter*> pointers;
  for (const int64_t index : parameters) {
    place_of_parameter_[static_cast<size_t>(index)] = {groups_.size(), static_cast<int64_t>(pointers.size())};
    pointers.push_back(&model_.parameters()[static_cast<size_t>(index)]);
  }
  groups_.push_back(std::make_unique<ShardGroup>(name, pointers, mesh_.shard, mesh_.replicate, mesh_.device));
}

template <typename Action>
void ShardEngine::for_groups(size_t block, Action&& action) {
  for (size_t group = blocks_[block].first_group; group < blocks_[block].end_group; ++group) {
    action(*groups_[group]);
  }
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

void ShardEngine::start_unshard(size_t block) {
  for_groups(block, [](ShardGroup& group) { group.start_unshard(); });
}

void ShardEngine::finish_unshard(size_t block) {
  start_unshard(block);
  for_groups(block, [](ShardGroup& group) { group.finish_unshard(); });
}

void ShardEngine::reshard(size_t block) {
  if (!keeps_unsharded_) {
    for_groups(block, [](ShardGroup& group) { group.reshard(); });
  }
}

at::Tensor ShardEngine::before_block(int64_t block, at::Tensor input) {
  const auto index = static_cast<size_t>(block);
  finish_unshard(index);
  if (prefetches_ && index + 1 < blocks_.size()) {
    start_unshard(index + 1);
  }
  if (at::GradMode::is_enabled()) {
    blocks_[index].pending_backwards += 1;
    if (input.defined() && input.requires_grad()) {
      return mark(input, [this, index] { post_backward(index); });
    }
  }
  return input;
}

at::Tensor ShardEngine::after_block(int64_t block, at::Tensor output) {
  const auto index = static_cast<size_t>(block);
  const bool has_backward = at::GradMode::is_enabled() && output.requires_grad();
  // The last block's backward comes next, so freeing it would only mean gathering it again.
  const bool is_needed_next = has_backward && index + 1 == blocks_.size();
  if (!is_needed_next) {
    reshard(index);
  }
  if (has_backward) {
    output.register_hook([this, index](const at::Tensor& gradient) {
      pre_backward(index);
      return gradient;
    });
  }
  return output;
}

void ShardEngine::pre_backward(size_t block) {
  if (!std::exchange(is_callback_queued_, true)) {
    torch::autograd::Engine::get_default_engine().queue_callback([this] { final_callback(); });
  }
  if (blocks_[block].is_read_by_backward) {
    finish_unshard(block);
  }
  if (prefetches_ && block > 0 && blocks_[block - 1].is_read_by_backward) {
    start_unshard(block - 1);
  }
}

void ShardEngine::post_backward(size_t block) {
  reshard(block);
  blocks_[block].pending_backwards -= 1;
  if (blocks_[block].pending_backwards == 0 && has_gradient_sync_) {
    if (block + 1 < blocks_.size()) {
      // The reductions of at most two blocks are under way.
      for_groups(block + 1, [](ShardGroup& group) { group.finish_reduce(); });
    }
    for_groups(block, [](ShardGroup& group) { group.start_reduce(); });
  }
}

// At the end of the backward: blocks whose input had no gradient (token ids) got no marker.
void ShardEngine::final_callback() {
  is_callback_queued_ = false;
  for (size_t block = blocks_.size(); block-- > 0;) {
    if (blocks_[block].pending_backwards > 0) {
      blocks_[block].pending_backwards = 1;
      post_backward(block);
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
