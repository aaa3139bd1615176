// The parameters of a group: their shards, and their leaves while gathered.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "dist/process_group.h"
#include "model/parameter.h"
#include "shard/group_context.h"
#include "shard/shard_layout.h"

namespace stft::shard {

enum class GroupState {
  kSharded,
  kGathering,
  kUnsharded,
  kInParts  // the ranks of GroupContext::part hold one gathered copy between them
};

class ParameterShards {
 public:
  // Makes the leaves of `parameters`. `is_whole`: every rank of the shard group keeps all rows.
  ParameterShards(const std::vector<model::Parameter*>& parameters, const GroupContext& context, bool is_whole);

  GroupState state() const { return state_; }
  // The leaves are the shards: nothing is ever gathered or freed.
  bool is_resident() const { return is_resident_; }
  int64_t size() const { return static_cast<int64_t>(members_.size()); }
  model::Parameter& parameter(int64_t index) const { return *members_[static_cast<size_t>(index)].parameter; }
  const ShardLayout& layout(int64_t index) const { return members_[static_cast<size_t>(index)].layout; }
  // This rank's rows, flat [own_numel], writable.
  at::Tensor own_rows(int64_t index) const;

  // Collective over the shard group (or the part): issues the all-gather unless it was issued already.
  void start_gather();
  // Collective when not started: the leaves are filled afterwards.
  void finish_gather() { finish_gather(true); }
  // Collective when not started: as finish_gather, but packed parameters stay bytes, from which unpack_held() fills
  // their leaves and free_held() frees them again, without communication. Nothing to do for leaves that are filled.
  void gather_packed();
  void unpack_held();
  void free_held();
  // Frees the leaves. A gather under way is waited for first.
  void free();
  // The same, but throws nothing when that gather fails.
  void free_quietly();
  // Frees the leaves but for this rank's share of what its part keeps.
  void keep_part();

  // Collective over the shard group: the whole tensor of one parameter on every rank, in its stored dtype; of a packed
  // one its rows of bytes.
  at::Tensor gather(int64_t index);

  // Bytes of the shards, of the gathered leaves (0 when resident), and of the buffer that a gather passes through (0
  // when it goes straight into a leaf).
  int64_t shard_bytes() const;
  int64_t leaf_bytes() const;
  int64_t buffer_bytes() const;
  // Bytes that the shards' storage has.
  int64_t held_bytes() const;
  const dist::CollectiveCounts& counts() const { return counts_; }

 private:
  struct Member {
    model::Parameter* parameter = nullptr;
    ShardLayout layout;                           // of a packed one, that of its rows of bytes
    const PackedForm* packed = nullptr;           // null: it is kept as its elements
    at::ScalarType gathered = at::kFloat;         // what goes over the wire: the narrower of stored and compute
    int64_t shard_offset = 0, shard_bytes = 0;    // in the flat shard
    int64_t gather_offset = 0, gather_bytes = 0;  // in one rank's part of the gather buffer
    at::Tensor shard;                             // [chunk_numel], stored dtype
    at::Tensor padded_leaf;                       // [ranks, chunk_numel]: the leaf's storage with its padding
    at::Tensor leaf_bytes;                        // the same as bytes
    int64_t leaf_size() const { return leaf_bytes.numel(); }
  };
  void place_members();
  void finish_gather(bool unpacks);
  void make_leaf(Member& member) const;
  bool is_direct() const;
  at::Tensor staged_input(at::Tensor& buffer) const;
  void allocate(const Member& member);
  void free_leaf(const Member& member);
  void start_part_gather();
  void copy_out(bool unpacks);
  void unpack(const Member& member, const at::Tensor& by_rank) const;
  void copy_parts_out();
  dist::PendingCollective issue(dist::ProcessGroup& group, const at::Tensor& output, const at::Tensor& input);

  GroupContext context_;
  int64_t ranks_, rank_;
  std::vector<Member> members_;
  bool is_resident_ = false;
  bool is_staged_ = false;  // shards are cast or moved on their way
  GroupState state_ = GroupState::kSharded;
  at::Tensor flat_shard_;  // bytes; undefined when resident
  int64_t shard_size_ = 0, gather_size_ = 0;
  at::Tensor buffer_;  // of a gather under way
  dist::PendingCollective gather_;
  at::Tensor kept_;  // bytes: this rank's share while kInParts
  at::Tensor held_;  // bytes: what all ranks sent, while packed parameters stay so
  dist::CollectiveCounts counts_;
};

}  // namespace stft::shard
