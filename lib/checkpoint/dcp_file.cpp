#include "checkpoint/dcp_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "io/pickle_reader.h"
#include "io/pickle_writer.h"

namespace stft::checkpoint {
namespace {

using io::PickleKind;
using io::PickleValue;

constexpr std::string_view kRebuildTensor = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kOrderedDict = "collections.OrderedDict";
constexpr std::string_view kPickleName = "/data.pkl";
constexpr io::PickleLimits kBlobLimits{std::uint64_t{1} << 26, std::uint64_t{1} << 20, 64};

std::vector<std::int64_t> contiguous_strides(std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<std::int64_t>(sizes[i], 1);
  return strides;
}

std::string tensor_pickle(const DcpDtype& dtype, std::span<const std::int64_t> sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  io::PickleWriter pickle;
  pickle.global(kRebuildTensor).begin_tuple();
  pickle.begin_tuple().string("storage").global(dtype.storage).string("0").string("cpu").integer(count).end_tuple();
  pickle.persistent_id().integer(0);  // the storage, the offset in it
  pickle.begin_tuple();
  for (const std::int64_t size : sizes) pickle.integer(size);
  pickle.end_tuple().begin_tuple();
  for (const std::int64_t stride : contiguous_strides(sizes)) pickle.integer(stride);
  pickle.end_tuple().boolean(false);                             // requires_grad
  pickle.global(kOrderedDict).begin_tuple().end_tuple().call();  // no backward hooks
  return pickle.end_tuple().call().finish();
}

// A torch.save archive: its entries lie below a folder whose name is free.
struct Archive {
  io::StoredZip zip;
  std::string folder;

  const io::StoredZipEntry* find(std::string_view name) const { return zip.find(fmt::format("{}/{}", folder, name)); }
  std::string_view text(const io::StoredZipEntry& entry) const {
    const auto bytes = zip.bytes(entry);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

Archive open_archive(std::span<const std::byte> blob, const std::string& origin) {
  Archive archive{io::StoredZip::open(blob, origin), {}};
  for (const io::StoredZipEntry& entry : archive.zip.entries()) {
    if (entry.name.ends_with(kPickleName)) {
      archive.folder = entry.name.substr(0, entry.name.size() - kPickleName.size());
      const io::StoredZipEntry* order = archive.find("byteorder");
      if (order != nullptr && archive.text(*order) != "little") {
        throw UserError(fmt::format("{}: its byte order is not 'little'", origin));
      }
      return archive;
    }
  }
  throw UserError(fmt::format("{}: the archive holds no 'data.pkl'", origin));
}

io::PickleDocument read_blob_pickle(const Archive& archive, const std::string& origin,
                                    std::span<const std::string_view> globals) {
  const io::StoredZipEntry* entry = archive.find("data.pkl");
  return io::read_pickle({archive.text(*entry), origin, globals, kBlobLimits});
}

class TensorReader {
 public:
  TensorReader(std::span<const std::byte> blob, const std::string& origin)
      : origin_(origin), archive_(open_archive(blob, origin)) {}

  DcpTensorBlob read() const;

 private:
  [[noreturn]] void fail(std::string_view problem) const {
    throw UserError(fmt::format("{}: not a readable tensor: {}", origin_, problem));
  }
  std::vector<std::int64_t> dimensions(const PickleValue& value) const;
  void check_strides(const DcpTensorBlob& tensor, const std::vector<std::int64_t>& strides) const;
  std::span<const std::byte> data(const DcpTensorBlob& tensor, const std::string& storage, std::int64_t offset) const;

  const std::string& origin_;
  Archive archive_;
};

std::vector<std::int64_t> TensorReader::dimensions(const PickleValue& value) const {
  constexpr std::size_t kMaxDimensions = 64;
  if (value.kind != PickleKind::kTuple || value.items.size() > kMaxDimensions) fail("malformed sizes");
  std::vector<std::int64_t> dimensions;
  for (const PickleValue* item : value.items) {
    if (item->kind != PickleKind::kInt || item->integer < 0) fail("malformed sizes");
    dimensions.push_back(item->integer);
  }
  return dimensions;
}

// A dimension of one row may have any stride, and so may all of an empty tensor.
void TensorReader::check_strides(const DcpTensorBlob& tensor, const std::vector<std::int64_t>& strides) const {
  if (strides.size() != tensor.sizes.size()) fail("malformed strides");
  if (std::find(tensor.sizes.begin(), tensor.sizes.end(), 0) != tensor.sizes.end()) return;
  const auto contiguous = contiguous_strides(tensor.sizes);
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (tensor.sizes[i] > 1 && strides[i] != contiguous[i]) {
      fail(fmt::format("it is not contiguous (sizes [{}], strides [{}])", fmt::join(tensor.sizes, ", "),
                       fmt::join(strides, ", ")));
    }
  }
}

std::span<const std::byte> TensorReader::data(const DcpTensorBlob& tensor, const std::string& storage,
                                              std::int64_t offset) const {
  const auto size = io::tensor_bytes(tensor.dtype, tensor.sizes);
  const io::StoredZipEntry* entry = archive_.find("data/" + storage);
  if (entry == nullptr) fail("its data is missing");
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  if (!size || __builtin_mul_overflow(static_cast<std::uint64_t>(offset), dtype_bits(tensor.dtype) / 8, &begin) ||
      __builtin_add_overflow(begin, *size, &end) || end > entry->size) {
    fail(fmt::format("its {} bytes of data are too few", entry->size));
  }
  return archive_.zip.bytes(*entry).subspan(begin, *size);
}

DcpTensorBlob TensorReader::read() const {
  std::vector<std::string_view> globals{kRebuildTensor, kOrderedDict};
  for (const DcpDtype& dtype : dcp_dtypes()) globals.push_back(dtype.storage);
  const io::PickleDocument document = read_blob_pickle(archive_, origin_, globals);
  const PickleValue& root = document.root();
  if (root.kind != PickleKind::kCall || root.text != kRebuildTensor) fail("it is another value");
  const auto& arguments = root.items[0]->items;  // storage, offset, sizes, strides, requires_grad, hooks
  if (arguments.size() < 4) fail("its description is too short");
  if (arguments[0]->kind != PickleKind::kPersistentId || arguments[0]->items[0]->kind != PickleKind::kTuple) {
    fail("it names no storage");
  }
  const auto& storage = arguments[0]->items[0]->items;  // "storage", class, name, device, count
  if (storage.size() < 3 || storage[1]->kind != PickleKind::kGlobal || storage[2]->kind != PickleKind::kString) {
    fail("it names no storage");
  }
  const auto& dtypes = dcp_dtypes();
  const auto dtype =
      std::find_if(dtypes.begin(), dtypes.end(), [&](const DcpDtype& d) { return d.storage == storage[1]->text; });
  if (dtype == dtypes.end()) fail("it names no storage");
  if (arguments[1]->kind != PickleKind::kInt || arguments[1]->integer < 0) fail("malformed offset");
  DcpTensorBlob tensor{dtype->dtype, dimensions(*arguments[2]), {}};
  tensor.data = data(tensor, storage[2]->text, arguments[1]->integer);
  check_strides(tensor, dimensions(*arguments[3]));
  return tensor;
}

}  // namespace

DcpFileWriter::DcpFileWriter(const std::string& path, io::StoredZipOptions options) : file_(path), options_(options) {}

DcpPlace DcpFileWriter::append(const std::string& pickle, std::optional<std::span<const std::byte>> storage) {
  io::StoredZipWriter zip([this](std::span<const std::byte> bytes) { file_.write(bytes); }, options_);
  zip.add("archive/data.pkl", pickle);
  zip.add("archive/byteorder", "little");
  if (storage) zip.add("archive/data/0", *storage);
  zip.add("archive/version", "3\n");
  const DcpPlace place{position_, zip.finish()};
  position_ += place.length;
  return place;
}

DcpPlace DcpFileWriter::append_tensor(io::Dtype dtype, std::span<const std::int64_t> sizes,
                                      std::span<const std::byte> bytes) {
  const DcpDtype* known = find_dcp_dtype(dtype);
  if (known == nullptr) {
    throw UserError(fmt::format("{}: a checkpoint cannot hold {} tensors", file_.path(), dtype_name(dtype)));
  }
  STFT_CHECK(io::tensor_bytes(dtype, sizes) == bytes.size(), "bytes that do not fit the tensor's sizes");
  return append(tensor_pickle(*known, sizes), bytes);
}

DcpPlace DcpFileWriter::append_object(const io::PythonValue& value) {
  return append(io::PickleWriter().value(value).finish(), std::nullopt);
}

void DcpFileWriter::commit() {
  file_.commit();
}

DcpTensorBlob read_dcp_tensor(std::span<const std::byte> blob, const std::string& origin) {
  return TensorReader(blob, origin).read();
}

io::PythonValue read_dcp_object(std::span<const std::byte> blob, const std::string& origin) {
  const Archive archive = open_archive(blob, origin);
  const io::PickleDocument document = read_blob_pickle(archive, origin, {});
  return io::to_python(document.root(), origin);
}

std::vector<std::string> damaged_entries(std::span<const std::byte> blob, const std::string& origin) {
  const auto zip = io::StoredZip::open(blob, origin);
  std::vector<std::string> names;
  for (const io::StoredZipEntry& entry : zip.entries()) {
    if (!zip.crc_matches(entry)) names.push_back(entry.name);
  }
  return names;
}

}  // namespace stft::checkpoint
