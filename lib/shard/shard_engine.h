// The sharding engine: drives the groups of a model through forward and backward (after PyTorch's FSDP2; Zhao et al.,
// "PyTorch FSDP", VLDB 2023).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dist/process_group.h"
#include "model/block_hooks.h"
#include "model/sentence_model.h"
#include "shard/shard_config.h"
#include "shard/shard_group.h"

namespace stft::shard {

// The groups that the engine communicates over, borrowed. full_shard: `shard` is the whole world; no_shard: `replicate`
// is. Gradients are summed over both.
struct EngineMesh {
  dist::ProcessGroup& shard;
  dist::ProcessGroup& replicate;
  at::Device device = at::kCPU;  // where shards, leaves and gradients are
};

// Gives this rank's rows of a parameter: writes rows [first_row, first_row + rows) of the whole tensor to the flat
// `destination`.
using RowSource = std::function<void(const model::Parameter&, const ShardLayout&, at::Tensor destination)>;

class ShardEngine final : public model::BlockObserver {
 public:
  // Takes over the leaves of `model`, which must outlive the engine. One group a block, besides one for each parameter
  // of config.own_group_bytes or more: alone in its group it is gathered into its leaf and reduced without a copy.
  ShardEngine(model::SentenceModel& model, EngineMesh mesh, const ShardConfig& config);
  ~ShardEngine() override;

  // Fills every shard from `source`; a rank is asked for its own rows only.
  void fill(const RowSource& source);

  // model::BlockObserver. Collective: all ranks run the same blocks in the same order, with or without gradient alike.
  at::Tensor before_block(int64_t block, at::Tensor input) override;
  at::Tensor after_block(int64_t block, at::Tensor output) override;

  // Whether the next backward reduces the gradients (default), or leaves them whole on every rank for a later one.
  void set_gradient_sync(bool is_on) { has_gradient_sync_ = is_on; }
  // Collective: after the last backward of a step. Afterwards local_parameters() has the summed gradients.
  void finish_gradients();
  void clear_gradients();

  // This rank's part of every parameter, in the table's order.
  std::vector<LocalParameter> local_parameters();

  // Collective: the whole tensor of parameter `index` of the table on every rank; one parameter at a time in memory.
  at::Tensor gather(int64_t index);

  // Collective: gathers every group and keeps it until the guard ends; forward passes meanwhile communicate nothing, so
  // ranks may run different numbers of them.
  class KeepUnsharded {
   public:
    explicit KeepUnsharded(ShardEngine& engine);
    ~KeepUnsharded();
    KeepUnsharded(const KeepUnsharded&) = delete;
    KeepUnsharded& operator=(const KeepUnsharded&) = delete;

   private:
    ShardEngine& engine_;
  };

  // Collective: a checksum of all parameters that does not depend on the number of ranks.
  uint64_t parameters_checksum();

  const std::vector<std::unique_ptr<ShardGroup>>& groups() const { return groups_; }

 private:
  struct BlockState {
    size_t first_group = 0;
    size_t end_group = 0;
    bool is_read_by_backward = true;
    int64_t pending_backwards = 0;  // forwards with gradient whose backward has not passed
  };
  void add_group(const std::string& name, const std::vector<int64_t>& parameters);
  template <typename Action>
  void for_groups(size_t block, Action&& action);
  void start_unshard(size_t block);
  void finish_unshard(size_t block);
  void reshard(size_t block);
  void pre_backward(size_t block);
  void post_backward(size_t block);
  void final_callback();

  model::SentenceModel& model_;
  EngineMesh mesh_;
  bool prefetches_ = true;
  std::vector<std::unique_ptr<ShardGroup>> groups_;
  std::vector<BlockState> blocks_;
  std::vector<std::pair<size_t, int64_t>> place_of_parameter_;  // table index -> group, index in group
  bool has_gradient_sync_ = true;
  bool keeps_unsharded_ = false;
  bool is_callback_queued_ = false;
};

}  // namespace stft::shard
