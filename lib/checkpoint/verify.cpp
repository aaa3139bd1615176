#include "checkpoint/verify.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/dcp_reader.h"
#include "checkpoint/stored_model.h"

namespace stft::checkpoint {
namespace {

namespace fs = std::filesystem;

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
  if (!fs::is_directory(directory)) {
    throw UserError("'" + directory + "' is not a directory");
  }
  Verification result;
  result.faults = checkpoint_faults(directory, FileCheck::kChecksums);
  for (const char* folder : {kShardedModelFolder, kOptimizerFolder}) {
    const std::string path = (fs::path(directory) / folder).string();
    if (fs::is_directory(path)) {
      for (const std::string& fault : dcp_faults(path, DcpCheck::kContent)) {
        result.faults.push_back(fault);
      }
    }
  }
  if (result.faults.empty()) {
    try {
      result.summary = describe(*StoredModel::open(directory).manifest());
    } catch (const UserError& error) {
      result.faults.emplace_back(error.what());
    }
  }
  return result;
}

}  // namespace stft::checkpoint
