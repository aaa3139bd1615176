// The weights of a model directory, in one safetensors file or several.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace stft::io {

// A tensor and the file that holds it. Both live as long as the ModelWeights (moving it keeps them valid).
struct StoredTensor {
  const SafetensorsFile* file = nullptr;
  const TensorInfo* info = nullptr;

  std::span<const std::byte> bytes() const { return file->bytes(*info); }
  std::span<const std::byte> rows(std::int64_t first_row, std::int64_t count) const {
    return file->rows(*info, first_row, count);
  }
};

class ModelWeights {
 public:
  // Opens `model.safetensors` of the directory, else the files of `model.safetensors.index.json`. Every tensor that the
  // index maps must be in its file; tensors that it does not map are ignored. UserError when there is neither, the
  // index is malformed or names a file outside the directory, and for every fault of a file.
  static ModelWeights open(const std::string& directory);

  // The tensors of one file. Errors of SafetensorsFile::open.
  static ModelWeights open_file(const std::string& path);

  // Whether open() has something to open.
  static bool exist_in(const std::string& directory);

  std::optional<StoredTensor> find(std::string_view name) const;
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }  // by name
  const std::vector<SafetensorsFile>& files() const { return files_; }                          // by file name
  const std::string& path() const { return path_; }  // the single file or the index

 private:
  void add_shards(const std::string& directory);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

}  // namespace stft::io
