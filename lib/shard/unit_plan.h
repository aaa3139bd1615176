// Which parameters are gathered and reduced together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/parameter.h"
#include "shard/shard_config.h"

namespace stft::shard {

// The parameters of one collective.
struct GroupPlan {
  std::vector<int64_t> parameters;  // indices into the table
  bool is_whole = false;            // every rank keeps them whole
};

// A stretch of blocks whose groups are gathered before its first block and freed after its last.
struct UnitPlan {
  std::string name;
  int64_t first_block = 0;
  int64_t end_block = 0;
  bool is_read_by_backward = true;
  std::vector<GroupPlan> groups;
};

// What is wrong with config.wrap for these blocks; none when nothing is.
std::optional<std::string> wrap_problem(const model::ParameterTable& parameters,
                                        const std::vector<model::Block>& blocks, const ShardConfig& config);

// Consecutive units that cover all blocks. Within a unit a parameter of config.own_group_bytes or more is a group of
// its own: it is gathered into its leaf and reduced without a copy. A parameter that several blocks use is in one unit
// only, so its blocks are merged.
//   kBlock    one unit a block
//   kModules  one unit for each block whose name ends with one of the suffixes, at a dot; numbers in the block's name
//             may be left out ("layer" means every encoder.layer.N). Blocks between them are one unit.
//   kAuto     blocks are merged until a unit has config.min_unit_bytes, in parts of about equal size. A block that the
//             backward does not read (embeddings) stays alone from 1 MiB on, so that it is not gathered again.
// `bytes_per_element` is that of the gathered parameters.
std::vector<UnitPlan> plan_units(const model::ParameterTable& parameters, const std::vector<model::Block>& blocks,
                                 const ShardConfig& config, int64_t bytes_per_element);

}  // namespace stft::shard
