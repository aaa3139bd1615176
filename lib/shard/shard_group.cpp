#include "shard/shard_group.h"

#include <utility>

namespace stft::shard {

ShardGroup::ShardGroup(std::string name, const std::vector<model::Parameter*>& parameters, const GroupContext& context,
                       bool is_whole)
    : name_(std::move(name)),
      copy_(context.replicate.rank() + (is_whole ? context.replicate.size() * context.shard.rank() : 0)),
      copies_(context.replicate.size() * (is_whole ? context.shard.size() : 1)),
      shards_(parameters, context, is_whole),
      reducer_(trainable(), context, is_whole, shards_.is_resident() && copies_ == 1) {}

std::vector<GradientReducer::Parameter> ShardGroup::trainable() const {
  std::vector<GradientReducer::Parameter> result;
  for (int64_t i = 0; i < shards_.size(); ++i) {
    if (shards_.parameter(i).is_trainable) {
      result.push_back({&shards_.parameter(i), shards_.layout(i)});
    }
  }
  return result;
}

void ShardGroup::abandon() {
  reducer_.abandon();
  shards_.free_quietly();
}

std::vector<LocalParameter> ShardGroup::local_parameters() const {
  std::vector<LocalParameter> result;
  int64_t trainable = 0;
  for (int64_t i = 0; i < shards_.size(); ++i) {
    LocalParameter local;
    local.parameter = &shards_.parameter(i);
    local.layout = shards_.layout(i);
    local.value = shards_.own_rows(i);
    if (local.parameter->is_trainable) {
      local.gradient = reducer_.own_rows(trainable++);
    }
    local.copy = copy_;
    local.copies = copies_;
    result.push_back(std::move(local));
  }
  return result;
}

dist::CollectiveCounts ShardGroup::counts() const {
  dist::CollectiveCounts counts = shards_.counts();
  counts += reducer_.counts();
  return counts;
}

}  // namespace stft::shard
