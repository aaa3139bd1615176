// The sharding engine: drives the groups of a model through forward and backward (after PyTorch's FSDP2; Zhao et al.,
// "PyTorch FSDP", VLDB 2023). README.md in this folder draws a group's life.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "dist/process_group.h"
#include "model/block_hooks.h"
#include "model/parameter.h"
#include "shard/memory_use.h"
#include "shard/packed_form.h"
#include "shard/shard_config.h"
#include "shard/shard_group.h"

namespace stft::shard {

// The groups that the engine communicates over, borrowed. full_shard: `shard` is the whole world; no_shard: `replicate`
// is. Gradients are summed over both.
struct EngineMesh {
  dist::ProcessGroup& shard;
  dist::ProcessGroup& replicate;
  dist::ProcessGroup* part = nullptr;  // reshard_after_forward as an integer: so many neighbours within `shard`
  at::Device device = at::kCPU;        // where leaves and gradients are, and the shards unless offloaded
};

// What is sharded, borrowed: the leaves are taken over.
struct EngineModel {
  model::ParameterTable& parameters;
  const std::vector<model::Block>& blocks;
  const PackedForms* packed = nullptr;  // null: no parameter is packed
};

// Gives this rank's rows of a parameter: writes rows [first_row, first_row + rows) of the whole tensor to the flat
// `destination`, in its dtype. Rows of a packed parameter are those of its bytes.
using RowSource = std::function<void(const model::Parameter&, const ShardLayout&, at::Tensor destination)>;

class ShardEngine final : public model::BlockObserver {
 public:
  // Everything that is borrowed must outlive the engine. `config` has no problem with its wrap (wrap_problem); its
  // strategy matters only in what becomes of the leaves after the forward, since the mesh says how they are cut.
  ShardEngine(EngineModel model, EngineMesh mesh, const ShardConfig& config);
  ~ShardEngine() override;

  // Fills every shard from `source`; a rank is asked for its own rows only. Gathered leaves are freed.
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
  std::vector<LocalParameter> local_parameters() const;

  // Collective: the whole tensor of parameter `index` of the table on every rank, in its stored dtype; one parameter at
  // a time in memory.
  at::Tensor gather(int64_t index);

  // Collective: every group is gathered; forwards after it gather what their own end freed again.
  void unshard_all();
  bool has_packed() const { return model_.packed != nullptr; }
  void reshard_all();

  // Until the guard ends no group is freed, so that nothing is gathered twice: for several forwards and backwards
  // between two changes of the parameters. Its end frees them all.
  class KeepUnsharded {
   public:
    enum class Gather {
      kNow,  // Collective, all groups at once; forwards then communicate nothing, so ranks may run different numbers
      // As kNow, but packed parameters stay bytes but for the unit that computes: forwards, without gradient and one
      // at a time, need the engine as their observer.
      kPacked,
      kWhenUsed  // each group by the first forward that needs it
    };
    explicit KeepUnsharded(ShardEngine& engine, Gather gather = Gather::kNow);
    ~KeepUnsharded();
    KeepUnsharded(const KeepUnsharded&) = delete;
    KeepUnsharded& operator=(const KeepUnsharded&) = delete;

   private:
    ShardEngine& engine_;
  };

  // After an exception in the middle of a step, when all ranks have come here: nothing is under way or gathered and
  // there are no gradients. The parameters are as they were.
  void reset();

  // Collective over the shard group: a checksum of all parameters that does not depend on the number of ranks.
  uint64_t parameters_checksum();
  // The same of the packed parameters alone.
  uint64_t packed_checksum();

  // This rank's collectives so far.
  dist::CollectiveCounts counts() const;
  // Of this rank: from the sizes alone, and what the tensors had. `keeps_whole_gradients`: gradients of several
  // micro-batches are kept before their reduction.
  MemoryUse planned_memory(bool keeps_whole_gradients) const;
  MemoryUse measured_memory() const;

  const std::vector<std::unique_ptr<ShardGroup>>& groups() const { return groups_; }

 private:
  struct Unit {
    int64_t first_block = 0, end_block = 0;
    UnitGroups range;
    int64_t pending_backwards = 0;     // forwards with gradient whose backward has not passed
    bool has_whole_gradients = false;  // on the leaves, not yet reduced
  };
  enum class Counted { kAll, kPacked };
  uint64_t checksum_of(Counted counted);
  template <typename Action>
  void for_groups(size_t unit, Action&& action);
  bool is_last(size_t unit) const { return unit + 1 == units_.size(); }
  void start_unshard(size_t unit);
  void finish_unshard(size_t unit);
  void release(size_t unit);
  void pre_backward(size_t unit);
  void post_backward(size_t unit);
  void reduce(size_t unit);
  void final_callback();

  EngineModel model_;
  EngineMesh mesh_;
  GatherSchedule schedule_;
  MemoryMeter meter_;
  std::vector<std::unique_ptr<ShardGroup>> groups_;
  std::vector<Unit> units_;
  std::vector<size_t> unit_of_block_;
  std::vector<std::pair<size_t, int64_t>> place_of_parameter_;  // table index -> group, index in group
  bool has_gradient_sync_ = true;
  bool keeps_unsharded_ = false;
  bool is_callback_queued_ = false;
  int64_t gradient_peak_ = 0;
};

}  // namespace stft::shard
