// A small checkpoint directory as any number of ranks would write it.
#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/dcp_file.h"
#include "checkpoint/dcp_metadata.h"
#include "io/file.h"

namespace stft::test {

using io::PythonList;
using io::PythonNone;
using io::PythonTuple;
using io::PythonValue;

struct FullTensor {
  std::string name;
  io::Dtype dtype = io::Dtype::kF32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

inline FullTensor full_tensor(const std::string& name, io::Dtype dtype, const std::vector<std::int64_t>& shape) {
  FullTensor tensor{name, dtype, shape, std::vector<std::byte>(io::tensor_bytes(dtype, shape).value())};
  for (std::size_t i = 0; i < tensor.bytes.size(); ++i) {
    tensor.bytes[i] = static_cast<std::byte>((i * 37 + name.size() * 11) % 251);
  }
  return tensor;
}

inline std::vector<FullTensor> full_tensors() {
  return {full_tensor("0.encoder.weight", io::Dtype::kF32, {7, 5}), full_tensor("0.bias", io::Dtype::kBF16, {2}),
          full_tensor("cube", io::Dtype::kI64, {4, 2, 3}), full_tensor("step", io::Dtype::kF32, {}),
          full_tensor("nothing", io::Dtype::kU8, {0, 3})};
}

inline std::vector<std::pair<std::string, PythonValue>> optimizer_values() {
  return {{"lr", {0.001}},
          {"betas", {PythonTuple{{{0.9}, {0.999}}}}},
          {"amsgrad", {false}},
          {"fused", {PythonNone{}}},
          {"count", {std::int64_t{1} << 40}},
          {"params", {PythonList{{{std::string("0.encoder.weight")}, {std::string("0.bias")}}}}}};
}

// Rows of dimension 0 by ceil(n / world); a rank without rows writes no chunk, scalars and empty tensors are rank 0's.
inline checkpoint::DcpMetadata write_dcp_files(const std::string& directory, int world,
                                               io::StoredZipOptions options = {}) {
  std::filesystem::create_directories(directory);
  checkpoint::DcpMetadata metadata;
  const auto tensors = full_tensors();
  for (const FullTensor& tensor : tensors) {
    metadata.tensors.push_back(
        {"model." + tensor.name, {std::string("model"), tensor.name}, tensor.dtype, tensor.shape, {}});
  }
  for (int rank = 0; rank < world; ++rank) {
    const std::string file = checkpoint::dcp_file_name(rank);
    checkpoint::DcpFileWriter writer(directory + "/" + file, options);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const FullTensor& tensor = tensors[i];
      const std::int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0];
      const std::int64_t each = (rows + world - 1) / world;
      const std::int64_t first = std::min(rank * each, rows);
      const std::int64_t last = std::min(first + each, rows);
      if (first == last && !(rows == 0 && rank == 0)) continue;
      auto sizes = tensor.shape;
      std::vector<std::int64_t> offsets(sizes.size(), 0);
      if (!sizes.empty()) {
        sizes[0] = last - first;
        offsets[0] = first;
      }
      const std::size_t row = rows == 0 ? 0 : tensor.bytes.size() / static_cast<std::size_t>(rows);
      const auto bytes =
          std::span(tensor.bytes)
              .subspan(static_cast<std::size_t>(first) * row, static_cast<std::size_t>(last - first) * row);
      const auto place = writer.append_tensor(tensor.dtype, sizes, bytes);
      metadata.tensors[i].chunks.push_back({offsets, sizes, file, place.offset, place.length});
    }
    if (rank == world - 1) {
      for (const auto& [name, value] : optimizer_values()) {
        const auto place = writer.append_object(value);
        metadata.objects.push_back({"optimizer.param_groups.0." + name,
                                    {std::string("optimizer"), std::string("param_groups"), std::int64_t{0}, name},
                                    file,
                                    place.offset,
                                    place.length});
      }
    }
    writer.commit();
  }
  return metadata;
}

inline void write_dcp_index(const std::string& directory, const checkpoint::DcpMetadata& metadata) {
  io::write_file(directory + "/" + checkpoint::kDcpMetadataFile, checkpoint::serialize(metadata));
}

inline checkpoint::DcpMetadata write_dcp(const std::string& directory, int world, io::StoredZipOptions options = {}) {
  auto metadata = write_dcp_files(directory, world, options);
  write_dcp_index(directory, metadata);
  return metadata;
}

}  // namespace stft::test
