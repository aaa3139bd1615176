#include "io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "base/error.h"

namespace stft::io {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

bool is_users_fault(int error_number) {
  switch (error_number) {
    case ENOENT:
    case EACCES:
    case EPERM:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL:
    case ENXIO:
      return true;
    default:
      return false;
  }
}

int open_to_read(const std::string& path) {
  if (path.find('\0') != std::string::npos) throw UserError("a file name contains a NUL byte");
  // O_NONBLOCK: opening a pipe without a writer must not hang; for regular files it has no effect.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor >= 0) return descriptor;
  const int error_number = errno;
  if (is_users_fault(error_number)) {
    throw UserError(fmt::format("cannot open '{}': {}", path, std::strerror(error_number)));
  }
  throw_errno("open", path, error_number);
}

std::size_t regular_file_size(int descriptor, const std::string& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw_errno("stat", path, errno);
  if (S_ISDIR(status.st_mode)) throw UserError(fmt::format("cannot open '{}': it is a directory", path));
  if (!S_ISREG(status.st_mode)) throw UserError(fmt::format("cannot open '{}': it is not a regular file", path));
  return static_cast<std::size_t>(status.st_size);
}

void sync_directory_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const Descriptor descriptor(::open(directory.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY));
  if (descriptor.get() < 0) throw_errno("open directory", directory, errno);
  // Some file systems cannot sync a directory and say EINVAL; the rename stands all the same.
  if (::fsync(descriptor.get()) != 0 && errno != EINVAL) throw_errno("fsync", directory, errno);
}

bool has_glob_characters(const std::string& text) {
  return text.find_first_of("*?[") != std::string::npos;
}

bool exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

bool is_directory(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::vector<std::string> expand_glob(const std::string& pattern) {
  glob_t matches{};
  const int code = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &matches);
  std::vector<std::string> paths;
  for (std::size_t i = 0; code == 0 && i < matches.gl_pathc; ++i) {
    std::string path = matches.gl_pathv[i];
    if (!is_directory(path)) paths.push_back(std::move(path));
  }
  ::globfree(&matches);
  if (code != 0 && code != GLOB_NOMATCH) throw SystemError(fmt::format("glob '{}' failed (code {})", pattern, code));
  if (paths.empty()) throw UserError(fmt::format("no file matches '{}'", pattern));
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

std::string read_text_file(const std::string& path) {
  const Descriptor descriptor(open_to_read(path));
  std::string content(regular_file_size(descriptor.get(), path), '\0');
  std::size_t filled = 0;
  while (true) {
    if (filled == content.size()) content.resize(content.size() + 4096);
    const ssize_t got = ::read(descriptor.get(), content.data() + filled, content.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno("read", path, errno);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  content.resize(filled);
  return content;
}

MappedFile::MappedFile(const std::string& path) {
  const Descriptor descriptor(open_to_read(path));
  size_ = regular_file_size(descriptor.get(), path);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor.get(), 0);
  if (address == MAP_FAILED) throw_errno("mmap", path, errno);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

PendingFile::PendingFile(std::string path) : path_(std::move(path)), temporary_path_(path_ + ".tmp") {
  descriptor_ = ::open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw_errno("create", temporary_path_, errno);
}

PendingFile::PendingFile(PendingFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_path_(std::move(other.temporary_path_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

PendingFile::~PendingFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_path_.c_str());
}

void PendingFile::write(std::span<const std::byte> bytes) {
  STFT_CHECK(descriptor_ >= 0, "the file is already committed");
  // Linux writes at most about 2 GiB at a time; the loop covers that too.
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_errno("write", temporary_path_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void PendingFile::commit() {
  STFT_CHECK(descriptor_ >= 0, "the file is already committed");
  if (::fsync(descriptor_) != 0) throw_errno("fsync", temporary_path_, errno);
  if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) throw_errno("rename", temporary_path_, errno);
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) throw_errno("close", path_, errno);
  sync_directory_of(path_);
}

void write_file(const std::string& path, std::string_view bytes) {
  PendingFile file(path);
  file.write(std::as_bytes(std::span(bytes.data(), bytes.size())));
  file.commit();
}

bool lies_in(const std::string& inner, const std::string& outer) {
  namespace fs = std::filesystem;
  const auto relative = fs::weakly_canonical(inner).lexically_relative(fs::weakly_canonical(outer));
  return !relative.empty() && *relative.begin() != "..";
}

std::vector<std::string> expand_paths(const std::vector<std::string>& patterns) {
  std::vector<std::string> paths;
  std::set<std::string> seen;
  for (const std::string& pattern : patterns) {
    std::vector<std::string> found;
    if (exists(pattern)) {
      found.push_back(pattern);
    } else if (has_glob_characters(pattern)) {
      found = expand_glob(pattern);
    } else {
      throw UserError(fmt::format("file '{}' does not exist", pattern));
    }
    for (std::string& path : found) {
      if (seen.insert(path).second) paths.push_back(std::move(path));
    }
  }
  return paths;
}

}  // namespace stft::io
