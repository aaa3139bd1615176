// Whole files: reading, mapping, replacing, and the expansion of globs.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stft::io {

// The content of a regular file. UserError when it cannot be opened (missing, no permission, a directory, not a regular
// file), SystemError when a read fails.
std::string read_text_file(const std::string& path);

// A read-only view of a regular file, mapped for as long as the object lives. Moving keeps the address. The file must
// not shrink meanwhile.
class MappedFile {
 public:
  // Errors as read_text_file. An empty file gives size() 0.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }  // null when size() is 0
  std::size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// A file that appears under its final name only when it is complete: writes go to `path` + ".tmp", commit() makes them
// durable and renames. Destroyed before that, it leaves nothing behind. SystemError on every failure.
class PendingFile {
 public:
  explicit PendingFile(std::string path);
  ~PendingFile();
  PendingFile(PendingFile&& other) noexcept;
  PendingFile& operator=(PendingFile&&) = delete;
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string temporary_path_;
  int descriptor_ = -1;
};

// Replaces `path` by `bytes` as a whole (a reader sees the old content or the new one) and makes it durable.
// SystemError on failure.
void write_file(const std::string& path, std::string_view bytes);

// Whether `inner` is `outer` or lies below it, links resolved as far as the paths exist.
bool lies_in(const std::string& inner, const std::string& outer);

// The files that `patterns` name, in the order of the patterns and byte-ascending inside a glob (*, ?, [...]); a file
// named twice is taken once. An entry that exists under its literal name is not expanded. UserError when a file does
// not exist or a glob matches no file.
std::vector<std::string> expand_paths(const std::vector<std::string>& patterns);

}  // namespace stft::io
