#include "checkpoint/dcp_metadata.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "io/pickle_writer.h"

namespace stft::checkpoint {
namespace {

using io::PickleWriter;

constexpr std::string_view kModule = "torch.distributed.checkpoint.metadata.";
// Nobody reads it; Python writes a random one, which would make equal checkpoints differ.
constexpr std::string_view kSaveId = "00000000-0000-0000-0000-000000000000";

// A chunk with its place in the tensor's list.
struct NumberedChunk {
  std::size_t index = 0;
  const DcpChunk* chunk = nullptr;
};

// The index finds a chunk by its key and offsets. Empty chunks of several ranks share theirs; one is enough.
std::vector<NumberedChunk> distinct_chunks(const DcpTensor& tensor) {
  std::set<std::vector<std::int64_t>> known;
  std::vector<NumberedChunk> chunks;
  for (const DcpChunk& chunk : tensor.chunks) {
    const bool is_new = known.insert(chunk.offsets).second;
    if (is_new) {
      chunks.push_back({chunks.size(), &chunk});
      continue;
    }
    const bool is_empty = std::find(chunk.sizes.begin(), chunk.sizes.end(), 0) != chunk.sizes.end();
    STFT_CHECK(is_empty, fmt::format("'{}' has two chunks at [{}]", tensor.key, fmt::join(chunk.offsets, ", ")));
  }
  return chunks;
}

class MetadataWriter {
 public:
  std::string write(const DcpMetadata& metadata);

 private:
  void begin(std::string_view qualified_name) { pickle_.global(qualified_name).new_object().begin_dict(); }
  void begin_metadata(std::string_view name) { begin(fmt::format("{}{}", kModule, name)); }
  void end() { pickle_.end_dict().set_state(); }

  void size(const std::vector<std::int64_t>& dimensions);
  void properties(const DcpTensor& tensor);
  void tensor(const DcpTensor& tensor);
  void path(const DcpPath& path);
  void chunk_place(const DcpTensor& tensor, const NumberedChunk& numbered);
  void place(const std::string& file, std::uint64_t offset, std::uint64_t length);

  PickleWriter pickle_;
};

void MetadataWriter::size(const std::vector<std::int64_t>& dimensions) {
  pickle_.global("torch.Size").begin_tuple().begin_tuple();
  for (const std::int64_t dimension : dimensions) pickle_.integer(dimension);
  pickle_.end_tuple().end_tuple().call();
}

void MetadataWriter::properties(const DcpTensor& tensor) {
  const DcpDtype* dtype = find_dcp_dtype(tensor.dtype);
  STFT_CHECK(dtype != nullptr, fmt::format("'{}': no checkpoint can hold {}", tensor.key, dtype_name(tensor.dtype)));
  pickle_.global(fmt::format("{}TensorProperties", kModule)).new_object().begin_tuple();
  pickle_.global(dtype->name);
  pickle_.global("torch.serialization._get_layout").begin_tuple().string("torch.strided").end_tuple().call();
  pickle_.boolean(false);  // requires_grad
  pickle_.global(fmt::format("{}_MEM_FORMAT_ENCODING", kModule)).begin_tuple().integer(0).end_tuple().call();
  pickle_.boolean(false).none();  // pin_memory, strides
  pickle_.end_tuple().set_state();
}

void MetadataWriter::tensor(const DcpTensor& tensor) {
  begin_metadata("TensorStorageMetadata");
  pickle_.string("properties");
  properties(tensor);
  pickle_.string("size");
  size(tensor.shape);
  pickle_.string("chunks").begin_list();
  for (const NumberedChunk& numbered : distinct_chunks(tensor)) {
    begin_metadata("ChunkStorageMetadata");
    pickle_.string("offsets");
    size(numbered.chunk->offsets);
    pickle_.string("sizes");
    size(numbered.chunk->sizes);
    end();
  }
  pickle_.end_list();
  end();
}

void MetadataWriter::path(const DcpPath& path) {
  pickle_.begin_tuple();
  for (const auto& part : path) {
    if (const auto* name = std::get_if<std::string>(&part)) {
      pickle_.string(*name);
    } else {
      pickle_.integer(std::get<std::int64_t>(part));
    }
  }
  pickle_.end_tuple();
}

void MetadataWriter::place(const std::string& file, std::uint64_t offset, std::uint64_t length) {
  begin("torch.distributed.checkpoint.filesystem._StorageInfo");
  pickle_.string("relative_path").string(file);
  pickle_.string("offset").integer(static_cast<std::int64_t>(offset));
  pickle_.string("length").integer(static_cast<std::int64_t>(length));
  end();
}

void MetadataWriter::chunk_place(const DcpTensor& tensor, const NumberedChunk& numbered) {
  begin_metadata("MetadataIndex");
  pickle_.string("fqn").string(tensor.key);
  pickle_.string("index").integer(static_cast<std::int64_t>(numbered.index));
  pickle_.string("offset");
  size(numbered.chunk->offsets);
  end();
  place(numbered.chunk->file, numbered.chunk->offset, numbered.chunk->length);
}

std::string MetadataWriter::write(const DcpMetadata& metadata) {
  begin_metadata("Metadata");
  pickle_.string("state_dict_metadata").begin_dict();
  for (const DcpTensor& entry : metadata.tensors) {
    pickle_.string(entry.key);
    tensor(entry);
  }
  for (const DcpObject& entry : metadata.objects) {
    pickle_.string(entry.key).global(fmt::format("{}BytesStorageMetadata", kModule)).new_object();
  }
  pickle_.end_dict().string("planner_data").begin_dict();
  for (const DcpTensor& entry : metadata.tensors) {
    pickle_.string(entry.key);
    path(entry.path);
  }
  for (const DcpObject& entry : metadata.objects) {
    pickle_.string(entry.key);
    path(entry.path);
  }
  pickle_.end_dict().string("storage_data").begin_dict();
  for (const DcpTensor& entry : metadata.tensors) {
    for (const NumberedChunk& numbered : distinct_chunks(entry)) chunk_place(entry, numbered);
  }
  for (const DcpObject& entry : metadata.objects) {
    begin_metadata("MetadataIndex");
    pickle_.string("fqn").string(entry.key).string("index").none();
    end();
    place(entry.file, entry.offset, entry.length);
  }
  pickle_.end_dict().string("storage_meta");
  begin_metadata("StorageMeta");
  pickle_.string("checkpoint_id").none().string("save_id").string(kSaveId).string("load_id").none();
  pickle_.string("modules").begin_list().end_list();
  end();
  pickle_.string("version").string("1.0.0");
  end();
  return pickle_.finish();
}

}  // namespace

std::string dcp_file_name(int rank) {
  return fmt::format("__{}_0.distcp", rank);
}

std::string serialize(const DcpMetadata& metadata) {
  return MetadataWriter().write(metadata);
}

}  // namespace stft::checkpoint
