// The index of a torch.distributed.checkpoint directory: its file `.metadata`, one Python pickle.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/safetensors.h"

namespace stft::checkpoint {

inline constexpr const char* kDcpMetadataFile = ".metadata";

// "__<rank>_0.distcp", the name that Python gives a rank's data file. Readers go by the index alone.
std::string dcp_file_name(int rank);

// A box of a tensor and the bytes that hold it. Sizes may be 0.
struct DcpChunk {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> sizes;
  std::string file;  // a name inside the directory
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// The way to an entry in nested dicts and lists: ("optimizer", "param_groups", 0, "lr"). Names hold dots, so `key`,
// which joins it with dots, cannot be split again.
using DcpPath = std::vector<std::variant<std::string, std::int64_t>>;

struct DcpTensor {
  std::string key;
  DcpPath path;
  io::Dtype dtype = io::Dtype::kF32;
  std::vector<std::int64_t> shape;  // of the whole tensor; empty: a scalar, whose one chunk has empty boxes
  std::vector<DcpChunk> chunks;
};

// A Python value that is no tensor.
struct DcpObject {
  std::string key;
  DcpPath path;
  std::string file;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

struct DcpMetadata {
  std::vector<DcpTensor> tensors;
  std::vector<DcpObject> objects;
};

// The element types that a checkpoint can hold, as Python names them.
struct DcpDtype {
  io::Dtype dtype = io::Dtype::kF32;
  std::string_view name;     // "torch.float32"
  std::string_view storage;  // "torch.FloatStorage", what a blob names
};
std::span<const DcpDtype> dcp_dtypes();
const DcpDtype* find_dcp_dtype(io::Dtype dtype);  // null when there is none

// The bytes of `.metadata` (version "1.0.0", no checkpoint_id), equal for equal input. Keys must be unique and dtypes
// must have a DcpDtype.
std::string serialize(const DcpMetadata& metadata);

// The reverse, for Python's files as well; entries in the file's order, a missing path is {key}. UserError, naming
// `path`, for anything malformed or of an unknown class, a key given twice, a chunk or object without a place, and a
// file name that leaves the directory. Whether the chunks fit the tensor and the files is DcpDirectory's to check.
DcpMetadata parse_dcp_metadata(std::string_view bytes, const std::string& path);

}  // namespace stft::checkpoint
