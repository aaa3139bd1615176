// The unit that communicates: parameters that are gathered and reduced together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dist/process_group.h"
#include "model/parameter.h"
#include "shard/gradient_reducer.h"
#include "shard/group_context.h"
#include "shard/parameter_shards.h"
#include "shard/shard_layout.h"

namespace stft::shard {

// A parameter's part on this rank, flat.
struct LocalParameter {
  const model::Parameter* parameter = nullptr;
  ShardLayout layout;
  at::Tensor value;     // [own_numel], writable view of the shard, in the parameter's stored dtype
  at::Tensor gradient;  // [own_numel] fp32; undefined when the parameter is frozen or no gradient was reduced
  // `copies` ranks hold these rows; this is the `copy`-th of them. Sums over ranks take copy 0 only.
  int64_t copy = 0;
  int64_t copies = 1;
};

class ShardGroup {
 public:
  // Makes the leaves of `parameters`. What `context` names must outlive the group. `is_whole`: every rank keeps all
  // rows, and gradients are all-reduced.
  ShardGroup(std::string name, const std::vector<model::Parameter*>& parameters, const GroupContext& context,
             bool is_whole = false);

  const std::string& name() const { return name_; }
  GroupState state() const { return shards_.state(); }
  const ParameterShards& shards() const { return shards_; }
  const GradientReducer& reducer() const { return reducer_; }

  // Collective over the shard group: issues the all-gather unless it was issued already.
  void start_unshard() { shards_.start_gather(); }
  // Collective when not started: the leaves are filled afterwards.
  void finish_unshard() { shards_.finish_gather(); }
  // See ParameterShards. The first is collective.
  void unshard_packed() { shards_.gather_packed(); }
  void unpack_held() { shards_.unpack_held(); }
  void free_held() { shards_.free_held(); }
  // Frees the leaves. A gather under way is waited for first.
  void reshard() { shards_.free(); }
  // Frees them but for a part, from which the next gather is made (GroupContext::part).
  void keep_part() { shards_.keep_part(); }

  // The three steps of a reduction, see GradientReducer. Collective.
  void start_reduce() { reducer_.start(); }
  void advance_reduce() { reducer_.advance(); }
  void finish_reduce() { reducer_.finish(); }

  // Forgets all gradients.
  void clear_gradients() { reducer_.clear(); }
  // After a failure: ends what is under way, whatever becomes of it, and forgets gradients and leaves.
  void abandon();
  // As reshard(), for where nothing may be thrown.
  void reshard_quietly() { shards_.free_quietly(); }

  std::vector<LocalParameter> local_parameters() const;

  // Collective over the shard group: the whole tensor of parameter `index` on every rank.
  at::Tensor gather(int64_t index) { return shards_.gather(index); }

  dist::CollectiveCounts counts() const;

 private:
  std::vector<GradientReducer::Parameter> trainable() const;

  std::string name_;
  int64_t copy_, copies_;
  ParameterShards shards_;
  GradientReducer reducer_;
};

}  // namespace stft::shard
