// Reading of torch.distributed.checkpoint directories, written by whatever number of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/dcp_metadata.h"
#include "io/file.h"
#include "io/python_value.h"

namespace stft::checkpoint {

enum class DcpCheck {
  kStructure,  // reads the index and the head of every blob
  kContent     // also every byte: the archives' check-sums, and that values can be read
};

// Everything that is wrong with a directory, a line each with the file's name; empty: nothing.
std::vector<std::string> dcp_faults(const std::string& directory, DcpCheck check);

// A checked directory with its files mapped: the files are long enough, the chunks lie in their tensors, do not overlap
// and cover them, and every blob has its chunk's shape and dtype. A rank touches only the pages of the rows it reads.
class DcpDirectory {
 public:
  // UserError that lists the faults of dcp_faults (kStructure).
  static DcpDirectory open(const std::string& directory);

  const std::string& path() const { return path_; }
  const std::vector<DcpTensor>& tensors() const { return metadata_.tensors; }
  const std::vector<DcpObject>& objects() const { return metadata_.objects; }
  const DcpTensor* find(std::string_view key) const;         // null when there is none
  const DcpObject* find_object(std::string_view key) const;  // null when there is none

  // Little-endian bytes of `rows` rows of dimension 0 of a tensor of this directory, row-major. The rows must exist; a
  // scalar is one row. read_rows_into: `target` has exactly their size; each byte is copied once.
  std::vector<std::byte> read_rows(const DcpTensor& tensor, std::int64_t first_row, std::int64_t rows) const;
  void read_rows_into(const DcpTensor& tensor, std::int64_t first_row, std::int64_t rows,
                      std::span<std::byte> target) const;

  // UserError when there is no such entry or its value is not plain data.
  io::PythonValue object(std::string_view key) const;

 private:
  friend class DcpDirectoryCheck;
  DcpDirectory() = default;
  std::size_t rows_size(const DcpTensor& tensor, std::int64_t first_row, std::int64_t rows) const;

  std::string path_;
  DcpMetadata metadata_;
  std::map<std::string, io::MappedFile, std::less<>> files_;         // by name
  std::map<std::string, std::size_t, std::less<>> tensor_index_;     // key -> position in tensors()
  std::map<std::string, std::size_t, std::less<>> object_index_;     // key -> position in objects()
  std::vector<std::vector<std::span<const std::byte>>> chunk_data_;  // by tensor and chunk
};

}  // namespace stft::checkpoint
