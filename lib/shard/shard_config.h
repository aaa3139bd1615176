// The recipe's `sharding:` block.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stft::shard {

enum class Strategy { kFullShard, kShardGradOp, kHybridShard, kNoShard, kAuto };
enum class ParamDtype { kFp32, kBf16, kFp16 };
enum class WrapKind { kAuto, kBlock, kModules };

struct ShardConfig {
  Strategy strategy = Strategy::kFullShard;
  // full_shard: true, or an integer (ranks of the group that keeps the gathered copy). Unset: the strategy's own.
  std::optional<bool> reshard_after_forward;
  std::optional<int64_t> reshard_after_forward_size;
  std::optional<int64_t> hybrid_shard_size;
  bool cpu_offload = false;
  int64_t prefetch = 1;                   // groups gathered ahead
  std::optional<ParamDtype> param_dtype;  // unset: from train.bf16
  ParamDtype reduce_dtype = ParamDtype::kFp32;
  WrapKind wrap = WrapKind::kAuto;
  std::vector<std::string> wrap_modules;  // with kModules: module name suffixes

  // Not in the recipe. Bytes are those of the gathered parameters.
  int64_t own_group_bytes = int64_t{16} << 20;  // a parameter of this size or more is a group of its own
  int64_t min_unit_bytes = int64_t{16} << 20;   // with kAuto: blocks are merged until they are worth a collective
  // Parameter name suffixes: every rank keeps these parameters whole and their gradients are all-reduced.
  std::vector<std::string> whole_parameters;
};

}  // namespace stft::shard
