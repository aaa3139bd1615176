#include "train/sharding_choice.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "checkpoint/optimizer_state.h"
#include "shard/strategy.h"

namespace stft::train {
namespace {

constexpr int64_t kFloatBytes = 4;

// The file's first number; none when there is no such file or it says "max".
std::optional<int64_t> first_number(const std::string& path, const std::string& label) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(label)) {
      continue;
    }
    const size_t digit = line.find_first_of("0123456789", label.size());
    int64_t value = 0;
    if (digit != std::string::npos &&
        std::from_chars(line.data() + digit, line.data() + line.size(), value).ec == std::errc()) {
      return value;
    }
    return std::nullopt;
  }
  return std::nullopt;
}

// Of a parameter that is not cut.
int64_t kept_bytes(const model::Parameter& parameter, const shard::PackedForms* packed) {
  if (packed != nullptr) {
    const auto form = packed->find(&parameter);
    if (form != packed->end()) {
      return form->second.rows * form->second.row_bytes;
    }
  }
  const auto size = static_cast<int64_t>(c10::elementSize(parameter.stored_dtype));
  return parameter.numel() * (parameter.is_trainable ? kFloatBytes : size);
}

// Below the root of the control groups; empty at the root.
std::filesystem::path own_control_group() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("0::/")) {
      return line.substr(4);
    }
  }
  return {};
}

}  // namespace

int64_t machine_memory() {
  int64_t bytes = std::numeric_limits<int64_t>::max();
  if (const auto kibibytes = first_number("/proc/meminfo", "MemTotal:")) {
    bytes = *kibibytes * 1024;
  }
  // The limits of this process's control group and of those around it ("0::/a/b").
  const std::filesystem::path root = "/sys/fs/cgroup";
  std::filesystem::path group = root / own_control_group();
  for (;; group = group.parent_path()) {
    if (const auto limit = first_number((group / "memory.max").string(), "")) {
      bytes = std::min(bytes, *limit);
    }
    if (group == root || !group.has_relative_path()) {
      return bytes;
    }
  }
}

int64_t memory_per_rank(dist::ProcessGroup& world) {
  const auto shares = dist::gather_integers(world, {machine_memory() / world.size()});
  return (*std::min_element(shares.begin(), shares.end())).front();
}

int64_t optimizer_bytes(const optim::OptimConfig& config, const model::Parameter& parameter, int64_t rows) {
  return parameter.is_trainable ? optim::planned_state_bytes(config, checkpoint::facts_of(parameter), rows) : 0;
}

shard::ParamDtype compute_dtype(const recipe::Recipe& recipe) {
  return recipe.sharding.param_dtype.value_or(recipe.train.bf16 ? shard::ParamDtype::kBf16 : shard::ParamDtype::kFp32);
}

shard::ShardConfig sharding_of(const recipe::Recipe& recipe, const ModelToShard& model, int64_t ranks, int64_t memory) {
  shard::ShardConfig sharding = recipe.sharding;
  sharding.param_dtype = compute_dtype(recipe);
  if (sharding.strategy != shard::Strategy::kAuto) {
    return sharding;
  }
  int64_t all = 0;
  int64_t trainable = 0;
  shard::ModelBytes bytes;
  for (const model::Parameter& parameter : model.parameters) {
    all += parameter.numel();
    bytes.parameters += kept_bytes(parameter, model.packed);
    trainable += parameter.is_trainable ? parameter.numel() : 0;
    bytes.optimizer += optimizer_bytes(recipe.optim, parameter, parameter.shape.front());
  }
  bytes.gathered = all * (sharding.param_dtype == shard::ParamDtype::kFp32 ? kFloatBytes : kFloatBytes / 2);
  bytes.gradients = trainable * kFloatBytes;
  sharding.strategy = shard::choose_strategy(bytes, ranks, memory);
  return sharding;
}

bool keeps_whole_gradients(const recipe::Recipe& recipe, const shard::ShardEngine& engine,
                           const shard::ShardConfig& sharding, int64_t memory) {
  if (recipe.train.gradient_accumulation_steps == 1) {
    return false;
  }
  if (sharding.strategy == shard::Strategy::kNoShard) {
    return true;
  }
  // From what is the same on all ranks: padding counts, this rank's number of rows does not.
  const shard::MemoryUse use = engine.planned_memory(true);
  int64_t optimizer = 0;
  for (const shard::LocalParameter& local : engine.local_parameters()) {
    optimizer += optimizer_bytes(recipe.optim, *local.parameter, local.layout.chunk_rows);
  }
  return use.parameters + use.gradients + use.gathers + optimizer <= memory / 2;
}

}  // namespace stft::train
