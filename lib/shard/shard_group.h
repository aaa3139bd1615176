// The unit that communicates: parameters that are gathered and reduced together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dist/process_group.h"
#include "model/parameter.h"
#include "shard/shard_layout.h"

namespace stft::shard {

// [Note: shard tensors]
// shard     the rows of a parameter that this rank owns; fp32; the optimizer's truth. All shards of a group lie in one
//           flat tensor, each padded to chunk_rows.
// leaf      the whole parameter that the model computes with (model::Parameter::leaf). It is made once and keeps its
//           storage object; while the group is sharded that storage has zero bytes. Autograd's saved views stay valid
//           because gathering fills the same storage again, without touching the version counter.
// With a shard group of one rank there is no flat tensor: the leaf is the shard and stays filled.

enum class GroupState { kSharded, kGathering, kUnsharded };

// A parameter's part on this rank, flat.
struct LocalParameter {
  const model::Parameter* parameter = nullptr;
  ShardLayout layout;
  at::Tensor value;     // [own_numel], writable view of the shard
  at::Tensor gradient;  // [own_numel]; undefined when the parameter is frozen or no gradient was reduced
};

class ShardGroup {
 public:
  // Makes the leaves of `parameters` on `device`. `shard` and `replicate` must outlive the group: gathers and
  // reduce-scatters run over `shard`, all-reduces of the reduced gradients over `replicate`.
  ShardGroup(std::string name, const std::vector<model::Parameter*>& parameters, dist::ProcessGroup& shard,
             dist::ProcessGroup& replicate, at::Device device = at::kCPU);

  const std::string& name() const { return name_; }
  GroupState state() const { return state_; }
  bool is_sharded() const { return shard_.size() > 1; }

  // Collective over the shard group: issues the all-gather unless it was issued already.
  void start_unshard();
  // Collective when not started: the leaves are filled afterwards.
  void finish_unshard();
  // Frees the leaves. A gather under way is waited for first.
  void reshard();

  // Collective over both groups: takes the gradients of the leaves (a missing one counts as zero), issues their
  // reduction and frees them. finish_reduce waits and adds the result to the gradient shard.
  void start_reduce();
  void finish_reduce();

  // Forgets all gradients.
  void clear_gradients();

  std::vector<LocalParameter> local_parameters();

  // Collective over the shard group: the whole tensor of parameter `index` on every rank.
  at::Tensor gather(int64_t index);

 private:
  struct Member {
    model::Parameter* parameter = nullptr;
    ShardLayout layout;
    int64_t offset = 0;            // in the flat shard
    int64_t gradient_offset = -1;  // in the flat gradient; -1: frozen
    at::Tensor padded_leaf;        // [ranks, chunk_numel]: the leaf's storage with its padding
  };
  void make_leaves();
  void allocate(const Member& member) const;
  std::vector<at::Tensor> take_leaf_gradients();
  at::Tensor pack_gradients();

  std::string name_;
  std::vector<Member> members_;
  dist::ProcessGroup& shard_;
  dist::ProcessGroup& replicate_;
  at::TensorOptions fp32_;
  GroupState state_ = GroupState::kSharded;
  at::Tensor flat_shard_;     // [sum of chunk_numel]; undefined with one shard rank
  at::Tensor flat_gradient_;  // [sum of chunk_numel of trainable]; undefined before the first reduction
  int64_t shard_numel_ = 0;
  int64_t gradient_numel_ = 0;
  at::Tensor gather_output_;
  dist::PendingCollective gather_;
  at::Tensor reduce_output_;
  dist::PendingCollective reduce_;
};

}  // namespace stft::shard
