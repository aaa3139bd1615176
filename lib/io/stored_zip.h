// ZIP archives without compression, as torch.save makes them: one archive is a slice of a larger file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stft::io {

struct StoredZipEntry {
  std::string name;
  std::uint64_t header_offset = 0;  // of its local header, from the start of the archive
  std::uint64_t offset = 0;         // of its data, from the start of the archive
  std::uint64_t size = 0;
  std::uint32_t crc32 = 0;
};

// An archive in memory (or mapped), checked: all entries STORED, inside the archive, names unique. Reads only the
// directory and the local headers, not the data.
class StoredZip {
 public:
  // The bytes must outlive the object. `origin`: path and position for messages. UserError for anything malformed.
  static StoredZip open(std::span<const std::byte> bytes, const std::string& origin);

  const std::vector<StoredZipEntry>& entries() const { return entries_; }  // as the directory lists them
  const StoredZipEntry* find(std::string_view name) const;                 // null when there is none
  std::span<const std::byte> bytes(const StoredZipEntry& entry) const;
  bool crc_matches(const StoredZipEntry& entry) const;  // reads the data

 private:
  std::span<const std::byte> bytes_;
  std::vector<StoredZipEntry> entries_;
};

struct StoredZipOptions {
  std::uint64_t alignment = 64;  // of every entry's data, from the start of the archive
  // Sizes and offsets from this on are written in the 64-bit form.
  std::uint64_t zip64_from = 0xFFFFFFFF;
};

// Writes an archive front to back; entries are not copied.
class StoredZipWriter {
 public:
  using Sink = std::function<void(std::span<const std::byte>)>;

  explicit StoredZipWriter(Sink sink, StoredZipOptions options = {});

  void add(const std::string& name, std::span<const std::byte> bytes);
  void add(const std::string& name, std::string_view bytes);

  // Writes the directory. Returns the length of the archive.
  std::uint64_t finish();

 private:
  void write(std::string_view bytes);

  Sink sink_;
  StoredZipOptions options_;
  std::vector<StoredZipEntry> entries_;
  std::uint64_t position_ = 0;
};

}  // namespace stft::io
