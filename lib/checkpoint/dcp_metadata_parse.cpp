#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "checkpoint/dcp_metadata.h"
#include "io/pickle_reader.h"

namespace stft::checkpoint {
namespace {

using io::PickleKind;
using io::PickleValue;

constexpr std::string_view kMetadata = "torch.distributed.checkpoint.metadata.Metadata";
constexpr std::string_view kTensorStorage = "torch.distributed.checkpoint.metadata.TensorStorageMetadata";
constexpr std::string_view kBytesStorage = "torch.distributed.checkpoint.metadata.BytesStorageMetadata";
constexpr std::string_view kProperties = "torch.distributed.checkpoint.metadata.TensorProperties";
constexpr std::string_view kChunk = "torch.distributed.checkpoint.metadata.ChunkStorageMetadata";
constexpr std::string_view kIndex = "torch.distributed.checkpoint.metadata.MetadataIndex";
constexpr std::string_view kStorageInfo = "torch.distributed.checkpoint.filesystem._StorageInfo";
constexpr std::string_view kSize = "torch.Size";

// Values may be shared in the pickle but are copied here, so these bound what a small file can unfold into.
constexpr std::size_t kMaxAttributes = 16;
constexpr std::size_t kMaxDimensions = 64;
constexpr std::size_t kMaxFileName = 255;
constexpr std::uint64_t kMinChunkBytes = 32;  // a chunk and its place take more in any pickle

std::vector<std::string_view> allowed_globals() {
  std::vector<std::string_view> globals{
      kMetadata,
      kTensorStorage,
      kBytesStorage,
      kProperties,
      kChunk,
      kIndex,
      kStorageInfo,
      kSize,
      "torch.distributed.checkpoint.metadata.StorageMeta",
      "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
      "torch.serialization._get_layout",
      "pathlib.PosixPath",
      "pathlib.PurePosixPath",
      "pathlib.WindowsPath",
      "pathlib.PureWindowsPath",
      "pathlib._local.PosixPath",
      "pathlib._local.PurePosixPath",
      "pathlib._local.WindowsPath",
      "pathlib._local.PureWindowsPath",
  };
  for (const DcpDtype& dtype : dcp_dtypes()) globals.push_back(dtype.name);
  return globals;
}

using Offsets = std::vector<std::int64_t>;
using PlaceKey = std::pair<std::string_view, std::optional<Offsets>>;  // no offsets: an object

struct StoredPlace {
  std::string file;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

class MetadataParser {
 public:
  MetadataParser(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  DcpMetadata parse();

 private:
  [[noreturn]] void fail(std::string_view problem) const {
    throw UserError(fmt::format("{}: not a readable checkpoint index: {}", path_, problem));
  }

  const PickleValue* find_attribute(const PickleValue& object, std::string_view name) const;
  const PickleValue& attribute(const PickleValue& object, std::string_view name) const;
  void expect_object(const PickleValue& value, std::string_view type) const;
  const std::string& text(const PickleValue& value, std::string_view what) const;
  std::uint64_t position(const PickleValue& value, std::string_view what) const;
  Offsets size(const PickleValue& value) const;
  std::string file_name(const PickleValue& value) const;

  void read_places(const PickleValue& storage_data);
  void read_paths(const PickleValue& metadata);
  StoredPlace place(const std::string& key, std::optional<Offsets> offsets) const;
  DcpPath path_of(const std::string& key) const;
  DcpTensor tensor(const std::string& key, const PickleValue& entry);
  io::Dtype dtype(const std::string& key, const PickleValue& properties) const;
  DcpObject object(const std::string& key) const;

  std::string_view bytes_;
  const std::string& path_;
  std::map<PlaceKey, const PickleValue*> places_;
  std::map<std::string_view, const PickleValue*> paths_;
  std::uint64_t chunks_ = 0;
};

const PickleValue* MetadataParser::find_attribute(const PickleValue& object, std::string_view name) const {
  if (object.items.size() < 2) return nullptr;
  const PickleValue& state = *object.items[1];
  if (state.kind != PickleKind::kDict || state.items.size() > 2 * kMaxAttributes) {
    fail(fmt::format("'{}' has no plain attributes", object.text));
  }
  for (std::size_t i = 0; i < state.items.size(); i += 2) {
    if (state.items[i]->kind == PickleKind::kString && state.items[i]->text == name) return state.items[i + 1];
  }
  return nullptr;
}

const PickleValue& MetadataParser::attribute(const PickleValue& object, std::string_view name) const {
  const PickleValue* value = find_attribute(object, name);
  if (value == nullptr) fail(fmt::format("'{}' has no attribute '{}'", object.text, name));
  return *value;
}

void MetadataParser::expect_object(const PickleValue& value, std::string_view type) const {
  if (value.kind != PickleKind::kObject || value.text != type) fail(fmt::format("a '{}' is missing", type));
}

const std::string& MetadataParser::text(const PickleValue& value, std::string_view what) const {
  if (value.kind != PickleKind::kString) fail(fmt::format("{} is no string", what));
  return value.text;
}

std::uint64_t MetadataParser::position(const PickleValue& value, std::string_view what) const {
  if (value.kind != PickleKind::kInt || value.integer < 0) fail(fmt::format("{} is no size", what));
  return static_cast<std::uint64_t>(value.integer);
}

Offsets MetadataParser::size(const PickleValue& value) const {
  const PickleValue* tuple = &value;
  if (value.kind == PickleKind::kCall && value.text == kSize && value.items[0]->items.size() == 1) {
    tuple = value.items[0]->items[0];
  }
  if (tuple->kind != PickleKind::kTuple || tuple->items.size() > kMaxDimensions) fail("a 'torch.Size' is malformed");
  Offsets dimensions;
  for (const PickleValue* item : tuple->items) {
    if (item->kind != PickleKind::kInt || item->integer < 0) fail("a 'torch.Size' is malformed");
    dimensions.push_back(item->integer);
  }
  return dimensions;
}

// Only a plain name keeps the reader inside the directory.
std::string MetadataParser::file_name(const PickleValue& value) const {
  const std::string& name = text(value, "a 'relative_path'");
  if (name.empty() || name == "." || name == ".." || name.size() > kMaxFileName ||
      name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
    fail(fmt::format("'{}' is no name of a file of the directory", name.substr(0, kMaxFileName)));
  }
  return name;
}

void MetadataParser::read_places(const PickleValue& storage_data) {
  if (storage_data.kind != PickleKind::kDict) fail("'storage_data' is no dict");
  for (std::size_t i = 0; i < storage_data.items.size(); i += 2) {
    const PickleValue& index = *storage_data.items[i];
    expect_object(index, kIndex);
    expect_object(*storage_data.items[i + 1], kStorageInfo);
    const std::string& key = text(attribute(index, "fqn"), "an 'fqn'");
    const PickleValue* offset = find_attribute(index, "offset");
    const bool has_offset = offset != nullptr && offset->kind != PickleKind::kNone;
    PlaceKey place{key, has_offset ? std::optional(size(*offset)) : std::nullopt};
    if (!places_.emplace(std::move(place), storage_data.items[i + 1]).second) {
      fail(fmt::format("'{}' has two places for the same part", key));
    }
  }
}

void MetadataParser::read_paths(const PickleValue& metadata) {
  const PickleValue* planner = find_attribute(metadata, "planner_data");
  if (planner == nullptr || planner->kind == PickleKind::kNone) return;
  if (planner->kind != PickleKind::kDict) fail("'planner_data' is no dict");
  for (std::size_t i = 0; i < planner->items.size(); i += 2) {
    paths_[text(*planner->items[i], "a key of 'planner_data'")] = planner->items[i + 1];
  }
}

StoredPlace MetadataParser::place(const std::string& key, std::optional<Offsets> offsets) const {
  const auto found = places_.find(PlaceKey{key, offsets});
  if (found == places_.end()) {
    fail(offsets ? fmt::format("'{}' has no place for its part at [{}]", key, fmt::join(*offsets, ", "))
                 : fmt::format("'{}' has no place", key));
  }
  const PickleValue& info = *found->second;
  const PickleValue* transforms = find_attribute(info, "transform_descriptors");
  if (transforms != nullptr && transforms->kind != PickleKind::kNone && !transforms->items.empty()) {
    fail(fmt::format("'{}' is stored with a transformation (compression, say); only plain data can be read", key));
  }
  return {file_name(attribute(info, "relative_path")), position(attribute(info, "offset"), "an 'offset'"),
          position(attribute(info, "length"), "a 'length'")};
}

DcpPath MetadataParser::path_of(const std::string& key) const {
  const auto found = paths_.find(key);
  if (found == paths_.end()) return {key};
  const PickleValue& tuple = *found->second;
  DcpPath path;
  std::string joined;
  if (tuple.kind == PickleKind::kTuple) {
    for (const PickleValue* part : tuple.items) {
      if (!path.empty()) joined += '.';
      if (part->kind == PickleKind::kString) {
        path.emplace_back(part->text);
        joined += part->text;
      } else if (part->kind == PickleKind::kInt) {
        path.emplace_back(part->integer);
        joined += std::to_string(part->integer);
      } else {
        break;
      }
      if (joined.size() > key.size()) break;
    }
  }
  if (joined != key || path.empty()) fail(fmt::format("'planner_data' of '{}' does not spell that key", key));
  return path;
}

io::Dtype MetadataParser::dtype(const std::string& key, const PickleValue& properties) const {
  expect_object(properties, kProperties);
  const PickleValue* state = properties.items.size() > 1 ? properties.items[1] : nullptr;
  if (state == nullptr || state->kind != PickleKind::kTuple || state->items.empty() ||
      state->items[0]->kind != PickleKind::kGlobal) {
    fail(fmt::format("'{}' has malformed properties", key));
  }
  for (const DcpDtype& dtype : dcp_dtypes()) {
    if (dtype.name == state->items[0]->text) return dtype.dtype;
  }
  fail(fmt::format("'{}' has the element type '{}'", key, state->items[0]->text));
}

DcpTensor MetadataParser::tensor(const std::string& key, const PickleValue& entry) {
  DcpTensor tensor{key, path_of(key), dtype(key, attribute(entry, "properties")), size(attribute(entry, "size")), {}};
  const PickleValue& chunks = attribute(entry, "chunks");
  if (chunks.kind != PickleKind::kList) fail(fmt::format("'{}' has no list of chunks", key));
  chunks_ += chunks.items.size();
  if (chunks_ > bytes_.size() / kMinChunkBytes) fail("it lists more chunks than it can hold");
  for (const PickleValue* item : chunks.items) {
    expect_object(*item, kChunk);
    DcpChunk chunk{size(attribute(*item, "offsets")), size(attribute(*item, "sizes")), {}, 0, 0};
    StoredPlace stored = place(key, chunk.offsets);
    chunk.file = std::move(stored.file);
    chunk.offset = stored.offset;
    chunk.length = stored.length;
    tensor.chunks.push_back(std::move(chunk));
  }
  return tensor;
}

DcpObject MetadataParser::object(const std::string& key) const {
  StoredPlace stored = place(key, std::nullopt);
  return {key, path_of(key), std::move(stored.file), stored.offset, stored.length};
}

DcpMetadata MetadataParser::parse() {
  const std::vector<std::string_view> globals = allowed_globals();
  const io::PickleDocument document = io::read_pickle({bytes_, path_, globals, {}});
  const PickleValue& root = document.root();
  expect_object(root, kMetadata);
  const PickleValue& entries = attribute(root, "state_dict_metadata");
  if (entries.kind != PickleKind::kDict) fail("'state_dict_metadata' is no dict");
  read_places(attribute(root, "storage_data"));
  read_paths(root);
  DcpMetadata metadata;
  std::set<std::string_view> known;
  for (std::size_t i = 0; i < entries.items.size(); i += 2) {
    const std::string& key = text(*entries.items[i], "a key of 'state_dict_metadata'");
    const PickleValue& entry = *entries.items[i + 1];
    if (!known.insert(key).second) fail(fmt::format("'{}' is there twice", key));
    if (entry.kind == PickleKind::kObject && entry.text == kBytesStorage) {
      metadata.objects.push_back(object(key));
    } else {
      expect_object(entry, kTensorStorage);
      metadata.tensors.push_back(tensor(key, entry));
    }
  }
  return metadata;
}

}  // namespace

DcpMetadata parse_dcp_metadata(std::string_view bytes, const std::string& path) {
  return MetadataParser(bytes, path).parse();
}

}  // namespace stft::checkpoint
