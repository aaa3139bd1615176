// The gradients of a group: from the leaves of all ranks to the sum, of which each rank keeps its rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "dist/process_group.h"
#include "model/parameter.h"
#include "shard/group_context.h"
#include "shard/shard_layout.h"

namespace stft::shard {

class GradientReducer {
 public:
  struct Parameter {
    model::Parameter* parameter = nullptr;
    ShardLayout layout;
  };
  // `parameters`: the trainable ones of a group, none is allowed. `stays_on_leaf`: the leaf is the shard and no other
  // rank has it, so its gradient needs no reduction. `is_whole`: every rank of the shard group keeps all rows.
  GradientReducer(std::vector<Parameter> parameters, const GroupContext& context, bool is_whole, bool stays_on_leaf);

  // Collective over the shard group: takes the gradients of the leaves (a missing one counts as zero), casts them to
  // the reduction's dtype, issues the reduction and frees them.
  void start();
  // Collective over the replicate group: waits for the sum over the shard group and issues that over the replicas.
  void advance();
  // Collective when not advanced: waits, and adds the sum to this rank's gradient, in fp32 at home().
  void finish();
  bool is_under_way() const { return stage_ != Stage::kIdle; }

  // This rank's rows of the sum, flat [own_numel] fp32; undefined when nothing was reduced.
  at::Tensor own_rows(int64_t index) const;
  void clear();
  // After a failure: ends a reduction under way, whatever becomes of it, and forgets all gradients.
  void abandon();

  // Bytes of the summed gradients, and of one whole gradient of every leaf.
  int64_t shard_bytes() const { return numel_ * 4; }
  int64_t whole_bytes() const;
  // Bytes of the gradients that are there: summed ones and those on the leaves.
  int64_t held_bytes() const;
  const dist::CollectiveCounts& counts() const { return counts_; }

 private:
  enum class Stage { kIdle, kShard, kReplicate };
  std::vector<at::Tensor> take_leaf_gradients();
  at::Tensor pack();

  std::vector<Parameter> parameters_;
  std::vector<int64_t> offsets_;
  int64_t numel_ = 0;  // stored on this rank
  GroupContext context_;
  int64_t ranks_;
  bool stays_on_leaf_;
  Stage stage_ = Stage::kIdle;
  at::Tensor output_;
  dist::PendingCollective pending_;
  at::Tensor sum_;  // [numel_] fp32 at home()
  dist::CollectiveCounts counts_;
};

}  // namespace stft::shard
