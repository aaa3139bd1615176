// The safetensors format: a length, a JSON header, and the tensors' bytes without gaps.
// Reading maps the file, so a rank touches only the pages of the rows it asks for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"

namespace stft::io {

// Every element type of the format, in the format's own order (the writer sorts tensors by it, last first).
enum class Dtype {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64
};

int dtype_bits(Dtype dtype);
std::string_view dtype_name(Dtype dtype);                     // as in the header: "F32"
std::optional<Dtype> dtype_from_name(std::string_view name);  // case-sensitive

// Bytes of a tensor; nothing when the number overflows 64 bits, a dimension is negative, or sub-byte elements do not
// fill whole bytes.
std::optional<std::uint64_t> tensor_bytes(Dtype dtype, std::span<const std::int64_t> shape);

struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;  // empty: a scalar
  std::uint64_t begin = 0;          // bytes from the start of the data, end exclusive
  std::uint64_t end = 0;
};

// A mapped file whose header has been checked: at most 100,000,000 bytes of valid JSON without duplicate keys, known
// dtypes, sizes that agree with shapes, and tensors that cover the data exactly, without holes, overlaps or a rest.
class SafetensorsFile {
 public:
  // UserError naming the path, the tensor and what is wrong; errors of MappedFile.
  static SafetensorsFile open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in the order of their bytes
  const TensorInfo* find(std::string_view name) const;                 // null when there is none
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // The little-endian bytes of a tensor of this file. They need not be aligned: copy, do not cast.
  std::span<const std::byte> bytes(const TensorInfo& tensor) const;

  // Those of `count` rows of dimension 0 from `first_row` on. The rows must exist; a scalar is one row. Rows of
  // sub-byte elements must fill whole bytes.
  std::span<const std::byte> rows(const TensorInfo& tensor, std::int64_t first_row, std::int64_t count) const;

 private:
  explicit SafetensorsFile(const std::string& path) : path_(path), file_(path) {}

  std::string path_;
  MappedFile file_;
  std::size_t data_offset_ = 0;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;  // name -> position in tensors_
  std::map<std::string, std::string> metadata_;
};

struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;
};

// Where the writer puts the tensors: by dtype (last of the enumeration first), then by name in bytes. UserError naming
// `path` when a size overflows.
std::vector<TensorInfo> safetensors_layout(const std::string& path, std::vector<TensorSpec> tensors);

// Writes a file as the reference implementation does: tensors by dtype (last of the enumeration first), then by name in
// bytes; compact header padded with spaces to a multiple of 8. The file appears under its name only by finish().
class SafetensorsWriter {
 public:
  // Writes the header to `path` + ".tmp". An empty `metadata` is left out. UserError when a name is not UTF-8 or is
  // given twice, or a size overflows; SystemError when the file cannot be written.
  SafetensorsWriter(const std::string& path, std::vector<TensorSpec> tensors,
                    const std::map<std::string, std::string>& metadata);

  const std::vector<TensorInfo>& layout() const { return layout_; }

  // The next bytes of the data, in layout() order; a tensor may come in several pieces, a piece belongs to one tensor.
  void append(std::span<const std::byte> bytes);

  // Makes the file durable and gives it its name. Every byte of the layout must have been appended.
  void finish();

 private:
  PendingFile file_;
  std::vector<TensorInfo> layout_;
  std::size_t current_ = 0;    // tensor that the next byte belongs to
  std::uint64_t written_ = 0;  // bytes of data so far
};

}  // namespace stft::io
