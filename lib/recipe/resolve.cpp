#include <string>
#include <vector>

#include "base/error.h"
#include "recipe/nearest.h"
#include "recipe/recipe.h"

namespace stft::recipe {

namespace {

// The multiples of `factor` around `value`, for messages.
std::string neighbours(int64_t value, int64_t factor) {
  const int64_t below = value / factor * factor;
  const std::string above = std::to_string(below + factor);
  return below > 0 ? std::to_string(below) + " or " + above : above;
}

std::string check_global_batch(const Recipe& recipe, int64_t world_size) {
  const int64_t rows = recipe.train.global_batch_size.value_or(0);
  const int64_t accumulation = recipe.train.gradient_accumulation_steps;
  const int64_t divisor = world_size * accumulation;
  if (rows % divisor == 0) {
    return {};
  }
  return where(recipe, "train.global_batch_size") + ": " + std::to_string(rows) + " rows do not divide by " +
         std::to_string(world_size) + " rank(s) x " + std::to_string(accumulation) + " gradient_accumulation_steps; " +
         neighbours(rows, divisor) + " would";
}

std::string check_hybrid_size(const Recipe& recipe, int64_t world_size) {
  const bool is_hybrid = recipe.sharding.strategy == shard::Strategy::kHybridShard;
  const int64_t size = is_hybrid ? recipe.sharding.hybrid_shard_size.value_or(1) : 1;
  if (world_size % size == 0) {
    return {};
  }
  return where(recipe, "sharding.hybrid_shard_size") + ": " + std::to_string(world_size) +
         " rank(s) do not divide into groups of " + std::to_string(size);
}

std::string check_part_size(const Recipe& recipe, int64_t world_size) {
  const shard::ShardConfig& sharding = recipe.sharding;
  const bool is_hybrid = sharding.strategy == shard::Strategy::kHybridShard;
  const int64_t ranks = is_hybrid ? sharding.hybrid_shard_size.value_or(world_size) : world_size;
  const int64_t part = sharding.reshard_after_forward_size.value_or(ranks);
  if (part >= ranks || ranks % part == 0) {
    return {};
  }
  return where(recipe, "sharding.reshard_after_forward") + ": the " + std::to_string(ranks) +
         " rank(s) that shard do not divide into groups of " + std::to_string(part);
}

}  // namespace

Recipe resolve(Recipe recipe, int64_t world_size) {
  if (world_size < 1) {
    throw UserError("the number of ranks must be at least 1, found " + std::to_string(world_size));
  }
  std::string problems;
  for (const std::string& problem : {check_global_batch(recipe, world_size), check_hybrid_size(recipe, world_size),
                                     check_part_size(recipe, world_size)}) {
    if (!problem.empty()) {
      problems.append(problems.empty() ? "" : "\n").append(problem);
    }
  }
  if (!problems.empty()) {
    throw UserError(problems);
  }
  if (recipe.train.global_batch_size.has_value()) {
    recipe.train.per_device_train_batch_size =
        *recipe.train.global_batch_size / (world_size * recipe.train.gradient_accumulation_steps);
  }
  return recipe;
}

}  // namespace stft::recipe
