#include "checkpoint/verify.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "base/error.h"
#include "checkpoint/adapter_files.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/dcp_reader.h"
#include "checkpoint/stored_model.h"
#include "io/directory.h"
#include "model/sentence_model.h"

namespace stft::checkpoint {
namespace {

namespace fs = std::filesystem;

// What is in the directory and not in the manifest, or claimed by it and not there.
std::vector<std::string> listing_faults(const std::string& directory, const Manifest& manifest) {
  std::vector<std::string> faults;
  std::set<std::string> listed;
  for (const ManifestFile& file : manifest.files) {
    if (!listed.insert(file.path).second) {
      faults.push_back(fmt::format("'{}': the manifest lists '{}' twice", directory, file.path));
    }
  }
  for (const std::string& path : io::files_below(directory)) {
    if (path != kManifestFile && !listed.contains(path)) {
      faults.push_back(fmt::format("'{}' is not in the manifest", (fs::path(directory) / path).string()));
    }
  }
  const bool is_sharded = manifest.state_dict_type == StateDictType::kSharded;
  std::vector<std::string> needed = {kRunStateFile, kRecipeFile,
                                     is_sharded ? "pytorch_model_fsdp_0/.metadata" : manifest.weights.front().path};
  if (manifest.has_optimizer) {
    needed.emplace_back("optimizer_0/.metadata");
  }
  for (const std::string& path : needed) {
    if (!listed.contains(path)) {
      faults.push_back(fmt::format("'{}': the manifest does not list '{}'", directory, path));
    }
  }
  return faults;
}

// Parameters of the model that the weights do not hold.
std::vector<std::string> coverage_faults(const StoredModel& stored) {
  std::set<std::string> keys;
  for (const PlannedFile& file : stored.plan()) {
    for (const PlannedTensor& tensor : file.tensors) {
      keys.insert(tensor.sharded_key);
    }
  }
  std::vector<std::string> faults;
  if (stored.is_adapter()) {
    open_adapter(stored.directory());  // every A has its B, of shapes that fit
    return faults;                     // its base is not part of the checkpoint, or is its files as they are
  }
  const model::SentenceModel model(stored.spec());
  for (const model::Parameter& parameter : model.parameters()) {
    const std::string key = sharded_key(parameter);
    if (!keys.contains(key)) {
      faults.push_back(fmt::format("'{}': the parameter '{}' is missing", stored.directory(), key));
    }
  }
  return faults;
}

std::string describe(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const ManifestFile& file : manifest.files) {
    bytes += file.size;
  }
  size_t tensors = 0;
  for (const PlannedFile& file : manifest.weights) {
    tensors += file.tensors.size();
  }
  return fmt::format("{} of step {} by {} rank{}, {} files, {} bytes, {} tensors",
                     manifest.state_dict_type == StateDictType::kFull ? "FULL_STATE_DICT" : "SHARDED_STATE_DICT",
                     manifest.step, manifest.world_size, manifest.world_size == 1 ? "" : "s", manifest.files.size(),
                     bytes, tensors);
}

}  // namespace

Verification verify_checkpoint(const std::string& directory) {
  if (!io::is_directory(directory)) {
    throw UserError("'" + directory + "' is not a directory");
  }
  Verification result;
  result.faults = checkpoint_faults(directory, FileCheck::kChecksums);
  if (result.faults.empty()) {
    result.faults = listing_faults(directory, *read_manifest(directory));
  }
  for (const char* folder : {kShardedModelFolder, kOptimizerFolder}) {
    const std::string path = (fs::path(directory) / folder).string();
    if (io::is_directory(path)) {
      for (const std::string& fault : dcp_faults(path, DcpCheck::kContent)) {
        result.faults.push_back(fault);
      }
    }
  }
  if (result.faults.empty()) {
    try {
      const StoredModel stored = StoredModel::open(directory);
      result.faults = coverage_faults(stored);
      result.summary = describe(*stored.manifest());
    } catch (const UserError& error) {
      result.faults.emplace_back(error.what());
    }
  }
  return result;
}

}  // namespace stft::checkpoint
