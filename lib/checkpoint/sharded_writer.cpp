#include "checkpoint/sharded_writer.h"

#include <ATen/ATen.h>

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "io/file.h"

namespace stft::checkpoint {
std::string dcp_key(const DcpPath& path) {
  std::string key;
  for (const auto& part : path) {
    const auto* name = std::get_if<std::string>(&part);
    key += (key.empty() ? "" : ".") + (name != nullptr ? *name : std::to_string(std::get<int64_t>(part)));
  }
  return key;
}

ShardedTensor sharded_entry(const PlannedTensor& tensor) {
  const std::string root = "model";
  return {{root, tensor.sharded_key.substr(root.size() + 1)},
          written_dtype(tensor, WeightPrecision::kMaster),
          tensor.shape};
}

DcpChunk row_chunk(const std::vector<int64_t>& shape, RowRange rows) {
  DcpChunk chunk;
  chunk.offsets.assign(shape.size(), 0);
  chunk.sizes = shape;
  if (!shape.empty()) {
    chunk.offsets.front() = rows.first;
    chunk.sizes.front() = rows.count;
  }
  return chunk;
}

ShardedWriter::ShardedWriter(dist::ProcessGroup& world, std::string directory, Attempt& attempt)
    : world_(world), directory_(std::move(directory)), attempt_(attempt) {
  attempt_.run([&] {
    const auto path = std::filesystem::path(directory_) / dcp_file_name(static_cast<int>(world_.rank()));
    file_ = std::make_unique<DcpFileWriter>(path.string());
  });
}

void ShardedWriter::add_rows(ShardedTensor tensor, RowRange rows, std::span<const std::byte> bytes) {
  Part part;
  part.rows = rows;
  if (rows.count > 0) {
    attempt_.run([&] { part.place = file_->append_tensor(tensor.dtype, row_chunk(tensor.shape, rows).sizes, bytes); });
  }
  tensors_.push_back(std::move(tensor));
  parts_.push_back(part);
}

void ShardedWriter::add_object(DcpPath path, const io::PythonValue& value) {
  if (world_.rank() != 0) {
    return;
  }
  attempt_.run([&] {
    const DcpPlace place = file_->append_object(value);
    objects_.push_back({dcp_key(path), path, dcp_file_name(0), place.offset, place.length});
  });
}

void ShardedWriter::finish() {
  attempt_.run([&] { file_->commit(); });
  const auto count = static_cast<int64_t>(parts_.size());
  auto mine = at::empty({count, 4}, at::kLong);
  for (int64_t i = 0; i < count; ++i) {
    const Part& part = parts_[static_cast<size_t>(i)];
    int64_t* row = mine.data_ptr<int64_t>() + i * 4;
    row[0] = part.rows.first;
    row[1] = part.rows.count;
    row[2] = static_cast<int64_t>(part.place.offset);
    row[3] = static_cast<int64_t>(part.place.length);
  }
  auto all = at::empty({world_.size(), count, 4}, at::kLong);
  if (count > 0) {
    world_.all_gather(all, mine).wait();
  }
  if (world_.rank() != 0) {
    return;
  }
  DcpMetadata metadata;
  metadata.objects = objects_;
  for (int64_t i = 0; i < count; ++i) {
    ShardedTensor& tensor = tensors_[static_cast<size_t>(i)];
    DcpTensor entry{dcp_key(tensor.path), tensor.path, tensor.dtype, tensor.shape, {}};
    for (int64_t rank = 0; rank < world_.size(); ++rank) {
      const int64_t* row = all.data_ptr<int64_t>() + (rank * count + i) * 4;
      if (row[1] > 0) {
        DcpChunk chunk = row_chunk(tensor.shape, {row[0], row[1]});
        chunk.file = dcp_file_name(static_cast<int>(rank));
        chunk.offset = static_cast<uint64_t>(row[2]);
        chunk.length = static_cast<uint64_t>(row[3]);
        entry.chunks.push_back(std::move(chunk));
      }
    }
    metadata.tensors.push_back(std::move(entry));
  }
  attempt_.run(
      [&] { io::write_file((std::filesystem::path(directory_) / kDcpMetadataFile).string(), serialize(metadata)); });
}

}  // namespace stft::checkpoint
