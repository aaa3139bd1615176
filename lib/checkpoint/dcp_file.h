// One data file of a torch.distributed.checkpoint directory: a row of torch.save archives, one per tensor or value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/dcp_metadata.h"
#include "io/file.h"
#include "io/python_value.h"
#include "io/stored_zip.h"

namespace stft::checkpoint {

// Where a blob lies in its file.
struct DcpPlace {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// Writes front to back and keeps no tensor. The file appears under its name by commit(); destroyed before, it leaves
// nothing behind. SystemError when a write fails.
class DcpFileWriter {
 public:
  explicit DcpFileWriter(const std::string& path, io::StoredZipOptions options = {});

  // A contiguous tensor: its little-endian bytes, exactly what dtype and sizes ask for. Sizes may hold 0; no sizes: a
  // scalar. UserError for a dtype without a DcpDtype.
  DcpPlace append_tensor(io::Dtype dtype, std::span<const std::int64_t> sizes, std::span<const std::byte> bytes);
  DcpPlace append_object(const io::PythonValue& value);

  void commit();  // durable; a file without entries is legal

 private:
  DcpPlace append(const std::string& pickle, std::optional<std::span<const std::byte>> storage);

  io::PendingFile file_;
  io::StoredZipOptions options_;
  std::uint64_t position_ = 0;
};

// A tensor blob: the data lies in the bytes that were read.
struct DcpTensorBlob {
  io::Dtype dtype = io::Dtype::kF32;
  std::vector<std::int64_t> sizes;
  std::span<const std::byte> data;
};

// Reads blobs, Python's as well. `origin` is the file and position for messages. UserError for anything malformed, a
// tensor that is not contiguous, and big-endian data.
DcpTensorBlob read_dcp_tensor(std::span<const std::byte> blob, const std::string& origin);
io::PythonValue read_dcp_object(std::span<const std::byte> blob, const std::string& origin);

// The entries of a blob whose bytes do not have the check-sum that the archive notes. UserError as above.
std::vector<std::string> damaged_entries(std::span<const std::byte> blob, const std::string& origin);

}  // namespace stft::checkpoint
