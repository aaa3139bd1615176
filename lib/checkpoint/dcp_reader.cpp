#include "checkpoint/dcp_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "checkpoint/dcp_boxes.h"
#include "checkpoint/dcp_file.h"
#include "io/mapped_pages.h"

namespace stft::checkpoint {
namespace {

constexpr std::size_t kMaxFaults = 1000;  // of dcp_faults
constexpr std::size_t kFaultsInMessage = 20;

// Where an entry's bytes are, as the index says.
struct Stored {
  const std::string& key;
  const std::string& file;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

Stored stored(const DcpTensor& tensor, const DcpChunk& chunk) {
  return {tensor.key, chunk.file, chunk.offset, chunk.length};
}

Stored stored(const DcpObject& object) {
  return {object.key, object.file, object.offset, object.length};
}

std::string joined(const std::string& directory, const std::string& name) {
  return (std::filesystem::path(directory) / name).string();
}

bool exists(const std::string& path) {
  std::error_code unknown;  // then opening it says why
  return std::filesystem::exists(path, unknown) || unknown;
}

}  // namespace

// Collects what is wrong on the way to a directory; the directory is usable when nothing is.
class DcpDirectoryCheck {
 public:
  DcpDirectoryCheck(const std::string& path, DcpCheck check) : check_(check) { directory_.path_ = path; }

  void run();
  const std::vector<std::string>& faults() const { return faults_; }
  DcpDirectory take() { return std::move(directory_); }

 private:
  void add(std::string fault) {
    if (faults_.size() < kMaxFaults) faults_.push_back(std::move(fault));
  }
  bool read_index();
  void map_files();
  void index_keys();
  std::string origin(const Stored& entry) const;
  std::optional<std::span<const std::byte>> blob(const Stored& entry) const;
  std::span<const std::byte> chunk_data(const DcpTensor& tensor, const DcpChunk& chunk);
  void check_content(std::span<const std::byte> blob, const std::string& origin);
  void check_object(const DcpObject& object);

  DcpCheck check_;
  DcpDirectory directory_;
  std::vector<std::string> faults_;
};

bool DcpDirectoryCheck::read_index() {
  const std::string path = joined(directory_.path_, kDcpMetadataFile);
  std::error_code unknown;
  if (!std::filesystem::is_directory(directory_.path_, unknown)) {
    add(fmt::format("'{}' is no directory", directory_.path_));
  } else if (!exists(path)) {
    add(fmt::format("{}: the file is missing: this is no checkpoint, or its saving was not finished", path));
  } else {
    try {
      const io::MappedFile file(path);
      directory_.metadata_ = parse_dcp_metadata(file.text(), path);
      return true;
    } catch (const UserError& error) {
      add(error.what());
    }
  }
  return false;
}

// A file that is missing or short is one fault, not one for every entry.
void DcpDirectoryCheck::map_files() {
  std::map<std::string, std::uint64_t, std::less<>> ends;
  const auto note = [&](const Stored& entry) {
    std::uint64_t end = 0;
    if (__builtin_add_overflow(entry.offset, entry.length, &end)) end = ~std::uint64_t{0};
    std::uint64_t& known = ends[entry.file];
    known = std::max(known, end);
  };
  for (const DcpTensor& tensor : directory_.metadata_.tensors) {
    for (const DcpChunk& chunk : tensor.chunks) note(stored(tensor, chunk));
  }
  for (const DcpObject& object : directory_.metadata_.objects) note(stored(object));
  for (const auto& [name, end] : ends) {
    const std::string path = joined(directory_.path_, name);
    try {
      if (!exists(path)) throw UserError(fmt::format("{}: the file is missing", path));
      io::MappedFile file(path);
      if (file.size() < end) {
        add(fmt::format("{}: the file is truncated: {} bytes, the index needs {}", path, file.size(), end));
      }
      directory_.files_.emplace(name, std::move(file));
    } catch (const UserError& error) {
      add(error.what());
    }
  }
}

void DcpDirectoryCheck::index_keys() {
  const DcpMetadata& metadata = directory_.metadata_;
  for (std::size_t i = 0; i < metadata.tensors.size(); ++i) directory_.tensor_index_[metadata.tensors[i].key] = i;
  for (std::size_t i = 0; i < metadata.objects.size(); ++i) directory_.object_index_[metadata.objects[i].key] = i;
}

std::string DcpDirectoryCheck::origin(const Stored& entry) const {
  return fmt::format("{}: '{}' at byte {}", joined(directory_.path_, entry.file), entry.key, entry.offset);
}

// Nothing when map_files has already said why.
std::optional<std::span<const std::byte>> DcpDirectoryCheck::blob(const Stored& entry) const {
  const auto file = directory_.files_.find(entry.file);
  if (file == directory_.files_.end()) return std::nullopt;
  const std::span bytes(file->second.data(), file->second.size());
  if (entry.offset > bytes.size() || entry.length > bytes.size() - entry.offset) return std::nullopt;
  return bytes.subspan(entry.offset, entry.length);
}

void DcpDirectoryCheck::check_content(std::span<const std::byte> blob, const std::string& origin) {
  for (const std::string& name : damaged_entries(blob, origin)) {
    add(fmt::format("{}: '{}' is damaged: its check-sum differs", origin, name));
  }
}

std::span<const std::byte> DcpDirectoryCheck::chunk_data(const DcpTensor& tensor, const DcpChunk& chunk) {
  const auto bytes = blob(stored(tensor, chunk));
  if (!bytes) return {};
  const std::string where = origin(stored(tensor, chunk));
  try {
    const DcpTensorBlob read = read_dcp_tensor(*bytes, where);
    if (read.dtype != tensor.dtype || read.sizes != chunk.sizes) {
      add(fmt::format("{}: it is {} of [{}], the index says {} of [{}]", where, dtype_name(read.dtype),
                      fmt::join(read.sizes, ", "), dtype_name(tensor.dtype), fmt::join(chunk.sizes, ", ")));
      return {};
    }
    if (check_ == DcpCheck::kContent) check_content(*bytes, where);
    return read.data;
  } catch (const UserError& error) {
    add(error.what());
    return {};
  }
}

void DcpDirectoryCheck::check_object(const DcpObject& object) {
  const auto bytes = blob(stored(object));
  if (!bytes || check_ != DcpCheck::kContent) return;
  const std::string where = origin(stored(object));
  try {
    check_content(*bytes, where);
    read_dcp_object(*bytes, where);
  } catch (const UserError& error) {
    add(error.what());
  }
}

void DcpDirectoryCheck::run() {
  if (!read_index()) return;
  index_keys();
  map_files();
  for (const DcpTensor& tensor : directory_.metadata_.tensors) {
    if (const auto fault = tiling_fault(tensor)) {
      add(fmt::format("{}: '{}': {}", joined(directory_.path_, kDcpMetadataFile), tensor.key, *fault));
    }
    auto& data = directory_.chunk_data_.emplace_back();
    for (const DcpChunk& chunk : tensor.chunks) data.push_back(chunk_data(tensor, chunk));
  }
  for (const DcpObject& object : directory_.metadata_.objects) check_object(object);
}

std::vector<std::string> dcp_faults(const std::string& directory, DcpCheck check) {
  DcpDirectoryCheck run(directory, check);
  run.run();
  return run.faults();
}

DcpDirectory DcpDirectory::open(const std::string& directory) {
  DcpDirectoryCheck check(directory, DcpCheck::kStructure);
  check.run();
  const std::vector<std::string>& faults = check.faults();
  if (faults.empty()) return check.take();
  const std::span shown(faults.data(), std::min(faults.size(), kFaultsInMessage));
  std::string message = fmt::format("{}", fmt::join(shown, "\n"));
  if (faults.size() > shown.size()) message += fmt::format("\n... and {} more", faults.size() - shown.size());
  throw UserError(message);
}

const DcpTensor* DcpDirectory::find(std::string_view key) const {
  const auto found = tensor_index_.find(key);
  return found == tensor_index_.end() ? nullptr : &metadata_.tensors[found->second];
}

const DcpObject* DcpDirectory::find_object(std::string_view key) const {
  const auto found = object_index_.find(key);
  return found == object_index_.end() ? nullptr : &metadata_.objects[found->second];
}

std::vector<std::byte> DcpDirectory::read_rows(const DcpTensor& tensor, std::int64_t first_row,
                                               std::int64_t rows) const {
  std::vector<std::byte> bytes(rows_size(tensor, first_row, rows));
  read_rows_into(tensor, first_row, rows, bytes);
  return bytes;
}

std::size_t DcpDirectory::rows_size(const DcpTensor& tensor, std::int64_t first_row, std::int64_t rows) const {
  std::vector<std::int64_t> shape = tensor.shape;
  const std::int64_t all_rows = shape.empty() ? 1 : shape[0];
  STFT_CHECK(first_row >= 0 && rows >= 0 && first_row <= all_rows && rows <= all_rows - first_row,
             fmt::format("'{}' has {} rows", tensor.key, all_rows));
  if (!shape.empty()) {
    shape[0] = rows;
  } else if (rows == 0) {
    return 0;
  }
  return io::tensor_bytes(tensor.dtype, shape).value();
}

void DcpDirectory::read_rows_into(const DcpTensor& tensor, std::int64_t first_row, std::int64_t rows,
                                  std::span<std::byte> target) const {
  STFT_CHECK(target.size() == rows_size(tensor, first_row, rows), "a target of another size than the rows");
  STFT_CHECK(find(tensor.key) == &tensor, "a tensor of another directory");
  const auto& data = chunk_data_[static_cast<std::size_t>(&tensor - metadata_.tensors.data())];
  for (std::size_t i = 0; i < data.size(); ++i) {
    copy_chunk_rows(tensor, tensor.chunks[i], data[i], {first_row, rows}, target);
    io::release_pages(data[i]);
  }
}

io::PythonValue DcpDirectory::object(std::string_view key) const {
  const DcpObject* object = find_object(key);
  if (object == nullptr) throw UserError(fmt::format("{}: the checkpoint holds no value '{}'", path_, key));
  const io::MappedFile& file = files_.find(object->file)->second;
  return read_dcp_object({file.data() + object->offset, static_cast<std::size_t>(object->length)},
                         fmt::format("{}: '{}' at byte {}", joined(path_, object->file), key, object->offset));
}

}  // namespace stft::checkpoint
