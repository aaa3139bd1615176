#include "shard/shard_group.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <utility>

#include "base/error.h"
#include "shard/storage.h"

namespace stft::shard {

ShardGroup::ShardGroup(std::string name, const std::vector<model::Parameter*>& parameters, dist::ProcessGroup& shard,
                       dist::ProcessGroup& replicate, at::Device device)
    : name_(std::move(name)),
      shard_(shard),
      replicate_(replicate),
      fp32_(at::TensorOptions().dtype(at::kFloat).device(device)) {
  for (model::Parameter* parameter : parameters) {
    Member member;
    member.parameter = parameter;
    member.layout = shard_layout(parameter->shape, shard.rank(), shard.size());
    member.offset = shard_numel_;
    shard_numel_ += member.layout.chunk_numel();
    if (parameter->is_trainable) {
      member.gradient_offset = gradient_numel_;
      gradient_numel_ += member.layout.chunk_numel();
    }
    members_.push_back(std::move(member));
  }
  make_leaves();
}

void ShardGroup::make_leaves() {
  const at::NoGradGuard no_grad;
  if (is_sharded()) {
    flat_shard_ = at::zeros({shard_numel_}, fp32_);
  }
  for (Member& member : members_) {
    model::Parameter& parameter = *member.parameter;
    member.padded_leaf = at::empty({shard_.size(), member.layout.chunk_numel()}, fp32_);
    // A tensor of its own on the padded storage, so that filling it never touches the leaf's version counter.
    auto leaf = at::empty({0}, fp32_);
    leaf.set_(member.padded_leaf.storage(), 0, parameter.shape, c10::contiguous_strides(parameter.shape));
    if (is_sharded()) {
      resize_storage(leaf, 0);
    } else {
      leaf.zero_();
    }
    leaf.set_requires_grad(parameter.is_trainable);
    parameter.leaf = leaf;
  }
  state_ = is_sharded() ? GroupState::kSharded : GroupState::kUnsharded;
}

void ShardGroup::allocate(const Member& member) const {
  resize_storage(member.padded_leaf, shard_.size() * member.layout.chunk_numel() * static_cast<int64_t>(sizeof(float)));
}

void ShardGroup::start_unshard() {
  if (state_ != GroupState::kSharded) {
    return;
  }
  if (members_.size() == 1) {
    allocate(members_.front());
    gather_ = shard_.all_gather(members_.front().padded_leaf, flat_shard_);
  } else {
    gather_output_ = at::empty({shard_.size() * shard_numel_}, fp32_);
    gather_ = shard_.all_gather(gather_output_, flat_shard_);
  }
  state_ = GroupState::kGathering;
}

void ShardGroup::finish_unshard() {
  start_unshard();
  if (state_ != GroupState::kGathering) {
    return;
  }
  gather_.wait();
  state_ = GroupState::kUnsharded;
  if (members_.size() == 1) {
    return;
  }
  std::vector<at::Tensor> destinations;
  std::vector<int64_t> sizes;
  for (const Member& member : members_) {
    allocate(member);
    destinations.push_back(member.padded_leaf);
    sizes.push_back(member.layout.chunk_numel());
  }
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView no_version_bump;
  at::split_with_sizes_copy_out(destinations, gather_output_.view({shard_.size(), shard_numel_}), sizes, 1);
  gather_output_ = at::Tensor();
}

void ShardGroup::reshard() {
  if (!is_sharded() || state_ == GroupState::kSharded) {
    return;
  }
  gather_.wait();
  gather_output_ = at::Tensor();
  for (const Member& member : members_) {
    resize_storage(member.padded_leaf, 0);
  }
  state_ = GroupState::kSharded;
}

std::vector<at::Tensor> ShardGroup::take_leaf_gradients() {
  std::vector<at::Tensor> gradients;
  for (Member& member : members_) {
    model::Parameter& parameter = *member.parameter;
    if (!parameter.is_trainable) {
      continue;
    }
    auto gradient = std::exchange(parameter.leaf.mutable_grad(), at::Tensor());
    gradients.push_back(gradient.defined() ? gradient : at::zeros(parameter.shape, fp32_));
  }
  return gradients;
}

// The gradients as [ranks, chunk_numel of all], rank r's rows of every parameter side by side in row r.
at::Tensor ShardGroup::pack_gradients() {
  const auto gradients = take_leaf_gradients();
  if (gradients.size() == 1 && gradients.front().numel() == shard_.size() * gradient_numel_) {
    return gradients.front().contiguous();  // rows divide evenly: the ranks' parts stand one after the other already
  }
  auto packed = at::empty({shard_.size(), gradient_numel_}, fp32_);
  at::_chunk_cat_out(packed, gradients, 0, shard_.size());
  return packed;
}

void ShardGroup::start_reduce() {
  if (gradient_numel_ == 0) {
    return;
  }
  const at::NoGradGuard no_grad;
  finish_reduce();
  if (!is_sharded() && replicate_.size() == 1) {
    return;  // the gradients stay where autograd accumulates them
  }
  const auto packed = pack_gradients();
  if (is_sharded()) {
    reduce_output_ = at::empty({gradient_numel_}, fp32_);
    reduce_ = shard_.reduce_scatter_sum(reduce_output_, packed);
    if (replicate_.size() > 1) {
      reduce_.wait();
    }
  } else {
    reduce_output_ = packed.view({-1});
  }
  if (replicate_.size() > 1) {
    reduce_ = replicate_.all_reduce_sum(reduce_output_);
  }
}

void ShardGroup::finish_reduce() {
  if (!reduce_output_.defined()) {
    return;
  }
  const at::NoGradGuard no_grad;
  reduce_.wait();
  auto reduced = std::exchange(reduce_output_, at::Tensor());
  if (flat_gradient_.defined()) {
    flat_gradient_.add_(reduced);
  } else {
    flat_gradient_ = std::move(reduced);
  }
}

void ShardGroup::clear_gradients() {
  finish_reduce();
  flat_gradient_ = at::Tensor();
  for (Member& member : members_) {
    member.parameter->leaf.mutable_grad() = at::Tensor();
  }
}

std::vector<LocalParameter> ShardGroup::local_parameters() {
  STFT_CHECK(!reduce_output_.defined(), "gradients are read while their reduction is under way");
  std::vector<LocalParameter> result;
  for (Member& member : members_) {
    LocalParameter local;
    local.parameter = member.parameter;
    local.layout = member.layout;
    const int64_t own = member.layout.own_numel();
    local.value = is_sharded() ? flat_shard_.narrow(0, member.offset, own) : member.parameter->leaf.detach().view({-1});
    if (member.gradient_offset >= 0) {
      if (flat_gradient_.defined()) {
        local.gradient = flat_gradient_.narrow(0, member.gradient_offset, own);
      } else if (member.parameter->leaf.grad().defined()) {
        local.gradient = member.parameter->leaf.grad().contiguous().view({-1});
      }
    }
    result.push_back(std::move(local));
  }
  return result;
}

at::Tensor ShardGroup::gather(int64_t index) {
  const Member& member = members_.at(static_cast<size_t>(index));
  const at::NoGradGuard no_grad;
  if (!is_sharded()) {
    return member.parameter->leaf.detach();
  }
  auto whole = at::empty({shard_.size() * member.layout.chunk_numel()}, fp32_);
  shard_.all_gather(whole, flat_shard_.narrow(0, member.offset, member.layout.chunk_numel())).wait();
  return whole.narrow(0, 0, member.parameter->numel()).view(member.parameter->shape);
}

}  // namespace stft::shard
