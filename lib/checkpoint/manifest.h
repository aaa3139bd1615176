// stft_checkpoint.json: what a checkpoint holds. Written last; a checkpoint without it is unfinished.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/base_identity.h"
#include "checkpoint/checkpoint_config.h"
#include "checkpoint/weight_plan.h"

namespace stft::checkpoint {

inline constexpr const char* kManifestFile = "stft_checkpoint.json";
inline constexpr const char* kRunStateFile = "stft_state.json";
inline constexpr const char* kTrainerStateFile = "trainer_state.json";
inline constexpr const char* kRecipeFile = "recipe.resolved.yaml";
inline constexpr int64_t kFormatVersion = 1;
inline constexpr int64_t kMaxWorldSize = 65536;

struct ManifestFile {
  std::string path;  // below the checkpoint
  uint64_t size = 0;
  std::string checksum;  // io::file_checksum
};

// How good the model of a checkpoint is, by the run's metric_for_best_model.
struct Score {
  std::string metric;  // as logged
  double value = 0;
  bool greater_is_better = true;
};

struct Manifest {
  StateDictType state_dict_type = StateDictType::kSharded;
  int64_t step = 0;
  int64_t world_size = 1;   // that wrote it
  std::string recipe_hash;  // of recipe.resolved.yaml
  bool has_optimizer = true;
  std::optional<std::string> input_dtype;  // of the input's config.json, where it tells one
  WeightPlan weights;
  std::map<std::string, double> metrics;  // of the evaluation at this step; empty when there was none
  std::optional<Score> score;
  std::optional<BaseIdentity> base;  // that an adapter was trained on; checkpoints of earlier versions do not tell
  std::vector<ManifestFile> files;   // all but the manifest itself, by path
};

// None when the directory has no manifest. UserError when it is malformed or of a later format version.
std::optional<Manifest> read_manifest(const std::string& directory);

// Durable. SystemError when it cannot be written.
void write_manifest(const Manifest& manifest, const std::string& directory);

// Size and checksum of the regular files `paths` below `directory`.
std::vector<ManifestFile> describe_files(const std::string& directory, const std::vector<std::string>& paths);

enum class FileCheck {
  kSizes,     // every file is there with its size
  kChecksums  // and its content
};

// What is wrong with the files of a manifest, one line each; empty: nothing.
std::vector<std::string> file_faults(const std::string& directory, const Manifest& manifest, FileCheck check);

}  // namespace stft::checkpoint
