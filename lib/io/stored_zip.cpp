#include "io/stored_zip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <concepts>

#include "base/error.h"
#include "io/utf8.h"

namespace stft::io {
namespace {

// Layouts: the ZIP specification (APPNOTE), sections 4.3 and 4.5.
constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kDirectoryEntry = 0x02014b50;
constexpr std::uint32_t kDirectoryEnd = 0x06054b50;
constexpr std::uint32_t kDirectoryEnd64 = 0x06064b50;
constexpr std::uint32_t kDirectoryLocator64 = 0x07064b50;
constexpr std::uint64_t kLocalHeaderSize = 30;
constexpr std::uint64_t kDirectoryEntrySize = 46;
constexpr std::uint64_t kDirectoryEndSize = 22;
constexpr std::uint64_t kLocatorSize = 20;
constexpr std::uint16_t kExtra64 = 0x0001;
constexpr std::uint16_t kExtraPadding = 0x4246;  // "FB", as torch.save pads
constexpr std::uint32_t kIn64 = 0xFFFFFFFF;      // the value is in the 64-bit record
constexpr std::uint16_t kCountIn64 = 0xFFFF;
constexpr std::uint16_t kEncrypted = 0x0001;
constexpr std::uint16_t kVersion = 20;
constexpr std::uint16_t kVersion64 = 45;
constexpr std::uint16_t kDate = 33;  // 1980-01-01, the first day there is

// Little-endian fields of one record, front to back.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename Integer>
  Integer next() {
    Integer value = 0;
    for (std::size_t i = 0; i < sizeof(Integer); ++i) {
      value = static_cast<Integer>(value | std::to_integer<Integer>(bytes_[position_ + i]) << (8 * i));
    }
    position_ += sizeof(Integer);
    return value;
  }
  void skip(std::size_t count) { position_ += count; }

 private:
  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
};

class Record {
 public:
  template <std::unsigned_integral Integer>
  Record& add(Integer value) {
    for (std::size_t i = 0; i < sizeof(Integer); ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xFF);
    return *this;
  }
  Record& add(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

struct Directory {
  std::uint64_t entries = 0;
  std::uint64_t size = 0;
  std::uint64_t offset = 0;
};

// The fields of a directory entry that its 64-bit record may replace, in the record's order.
struct Extent {
  std::uint64_t size = 0;
  std::uint64_t stored_size = 0;
  std::uint64_t header_offset = 0;
};

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& origin) : bytes_(bytes), origin_(origin) {}

  std::vector<StoredZipEntry> entries() const;

 private:
  [[noreturn]] void fail(std::string_view problem) const {
    throw UserError(fmt::format("{}: not a readable torch.save archive: {}", origin_, problem));
  }
  std::span<const std::byte> slice(std::uint64_t offset, std::uint64_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) fail("it ends in the middle");
    return bytes_.subspan(offset, size);
  }
  std::uint64_t find_end() const;
  Directory directory() const;
  Directory directory64(std::uint64_t end) const;
  StoredZipEntry entry_at(std::span<const std::byte> record) const;
  Extent with_extra64(Extent extent, std::span<const std::byte> extra) const;
  std::uint64_t data_offset(const StoredZipEntry& entry) const;

  std::span<const std::byte> bytes_;
  const std::string& origin_;
};

std::uint64_t Parser::find_end() const {
  if (bytes_.size() < kDirectoryEndSize) fail("it is too short");
  const std::uint64_t last = bytes_.size() - kDirectoryEndSize;
  const std::uint64_t longest_comment = std::min<std::uint64_t>(last, 0xFFFF);
  for (std::uint64_t comment = 0; comment <= longest_comment; ++comment) {
    if (bytes_[last - comment] != std::byte{'P'}) continue;
    Fields fields(slice(last - comment, kDirectoryEndSize));
    if (fields.next<std::uint32_t>() != kDirectoryEnd) continue;
    fields.skip(16);
    if (fields.next<std::uint16_t>() == comment) return last - comment;
  }
  fail("its directory is missing");
}

Directory Parser::directory64(std::uint64_t end) const {
  if (end < kLocatorSize) fail("its 64-bit directory is missing");
  Fields locator(slice(end - kLocatorSize, kLocatorSize));
  if (locator.next<std::uint32_t>() != kDirectoryLocator64) fail("its 64-bit directory is missing");
  locator.skip(4);
  Fields fields(slice(locator.next<std::uint64_t>(), 56));
  if (fields.next<std::uint32_t>() != kDirectoryEnd64) fail("its 64-bit directory is missing");
  fields.skip(20);
  Directory directory;
  fields.skip(8);  // entries on this disk
  directory.entries = fields.next<std::uint64_t>();
  directory.size = fields.next<std::uint64_t>();
  directory.offset = fields.next<std::uint64_t>();
  return directory;
}

Directory Parser::directory() const {
  const std::uint64_t end = find_end();
  Fields fields(slice(end, kDirectoryEndSize));
  fields.skip(10);
  Directory directory;
  directory.entries = fields.next<std::uint16_t>();
  directory.size = fields.next<std::uint32_t>();
  directory.offset = fields.next<std::uint32_t>();
  if (directory.entries == kCountIn64 || directory.size == kIn64 || directory.offset == kIn64) {
    directory = directory64(end);
  }
  if (directory.entries > directory.size / kDirectoryEntrySize) fail("its directory lists more than it holds");
  return directory;
}

Extent Parser::with_extra64(Extent extent, std::span<const std::byte> extra) const {
  while (extra.size() >= 4) {
    Fields fields(extra);
    const auto id = fields.next<std::uint16_t>();
    const auto size = fields.next<std::uint16_t>();
    if (size > extra.size() - 4) fail("an extra field is too long");
    if (id == kExtra64) {
      std::size_t left = size;
      for (std::uint64_t* value : {&extent.size, &extent.stored_size, &extent.header_offset}) {
        if (*value != kIn64) continue;
        if (left < 8) fail("a 64-bit size is missing");
        *value = fields.next<std::uint64_t>();
        left -= 8;
      }
      break;
    }
    extra = extra.subspan(4u + size);
  }
  return extent;
}

// By the local header: its lengths differ from the directory's, the padding is only there.
std::uint64_t Parser::data_offset(const StoredZipEntry& entry) const {
  Fields fields(slice(entry.header_offset, kLocalHeaderSize));
  if (fields.next<std::uint32_t>() != kLocalHeader) fail(fmt::format("'{}' has no header", entry.name));
  fields.skip(22);
  const auto name_size = fields.next<std::uint16_t>();
  const auto extra_size = fields.next<std::uint16_t>();
  const auto name = slice(entry.header_offset + kLocalHeaderSize, name_size);
  if (std::string_view(reinterpret_cast<const char*>(name.data()), name.size()) != entry.name) {
    fail(fmt::format("'{}' has the header of another entry", entry.name));
  }
  const std::uint64_t offset = entry.header_offset + kLocalHeaderSize + name_size + extra_size;
  slice(offset, entry.size);
  return offset;
}

// `record`: a whole entry of the directory.
StoredZipEntry Parser::entry_at(std::span<const std::byte> record) const {
  Fields fields(record);
  fields.skip(8);
  const auto flags = fields.next<std::uint16_t>();
  const auto method = fields.next<std::uint16_t>();
  fields.skip(4);
  StoredZipEntry entry;
  Extent extent;
  entry.crc32 = fields.next<std::uint32_t>();
  extent.stored_size = fields.next<std::uint32_t>();
  extent.size = fields.next<std::uint32_t>();
  const std::size_t name_size = fields.next<std::uint16_t>();
  const std::size_t extra_size = fields.next<std::uint16_t>();
  fields.skip(10);
  extent.header_offset = fields.next<std::uint32_t>();
  const auto name = record.subspan(kDirectoryEntrySize, name_size);
  entry.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
  if (first_invalid_utf8(entry.name)) fail("a name is not valid UTF-8");
  extent = with_extra64(extent, record.subspan(kDirectoryEntrySize + name_size, extra_size));
  if (method != 0 || (flags & kEncrypted) != 0 || extent.stored_size != extent.size) {
    fail(fmt::format("'{}' is compressed or encrypted", entry.name));
  }
  entry.size = extent.size;
  entry.header_offset = extent.header_offset;
  entry.offset = data_offset(entry);
  return entry;
}

std::vector<StoredZipEntry> Parser::entries() const {
  const Directory directory = this->directory();
  auto rest = slice(directory.offset, directory.size);
  std::vector<StoredZipEntry> entries;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    if (rest.size() < kDirectoryEntrySize) fail("its directory ends in the middle");
    Fields fields(rest);
    if (fields.next<std::uint32_t>() != kDirectoryEntry) fail("its directory is damaged");
    fields.skip(24);
    std::size_t size = kDirectoryEntrySize;
    for (int field = 0; field < 3; ++field) size += fields.next<std::uint16_t>();  // name, extra, comment
    if (size > rest.size()) fail("its directory ends in the middle");
    entries.push_back(entry_at(rest.first(size)));
    rest = rest.subspan(size);
  }
  return entries;
}

std::uint32_t crc_of(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<z_size_t>(bytes.size())));
}

}  // namespace

StoredZip StoredZip::open(std::span<const std::byte> bytes, const std::string& origin) {
  StoredZip archive;
  archive.bytes_ = bytes;
  archive.entries_ = Parser(bytes, origin).entries();
  std::vector<std::string_view> names;
  for (const StoredZipEntry& entry : archive.entries_) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    throw UserError(fmt::format("{}: not a readable torch.save archive: it holds '{}' twice", origin, *twice));
  }
  return archive;
}

const StoredZipEntry* StoredZip::find(std::string_view name) const {
  const auto entry =
      std::find_if(entries_.begin(), entries_.end(), [&](const StoredZipEntry& e) { return e.name == name; });
  return entry == entries_.end() ? nullptr : &*entry;
}

std::span<const std::byte> StoredZip::bytes(const StoredZipEntry& entry) const {
  return bytes_.subspan(entry.offset, entry.size);
}

bool StoredZip::crc_matches(const StoredZipEntry& entry) const {
  const auto data = bytes(entry);
  return entry.crc32 == (data.empty() ? 0 : crc_of(data));
}

StoredZipWriter::StoredZipWriter(Sink sink, StoredZipOptions options) : sink_(std::move(sink)), options_(options) {
  STFT_CHECK(options_.alignment > 0 && options_.alignment <= 4096 && options_.zip64_from <= kIn64,
             "an alignment up to 4096 and 32-bit fields");
}

void StoredZipWriter::write(std::string_view bytes) {
  sink_(std::as_bytes(std::span(bytes.data(), bytes.size())));
  position_ += bytes.size();
}

void StoredZipWriter::add(const std::string& name, std::string_view bytes) {
  add(name, std::as_bytes(std::span(bytes.data(), bytes.size())));
}

void StoredZipWriter::add(const std::string& name, std::span<const std::byte> bytes) {
  StoredZipEntry entry{name, position_, 0, bytes.size(), bytes.empty() ? 0 : crc_of(bytes)};
  const bool wide = entry.size >= options_.zip64_from;
  Record extra;
  if (wide) extra.add(kExtra64).add(std::uint16_t{16}).add(entry.size).add(entry.size);
  const std::uint64_t before = position_ + kLocalHeaderSize + name.size() + extra.bytes().size() + 4;
  const auto padding =
      static_cast<std::uint16_t>((options_.alignment - before % options_.alignment) % options_.alignment);
  extra.add(kExtraPadding).add(padding).add(std::string(padding, 'Z'));
  const auto size = wide ? kIn64 : static_cast<std::uint32_t>(entry.size);
  Record header;
  header.add(kLocalHeader).add(wide ? kVersion64 : kVersion).add(std::uint16_t{0}).add(std::uint16_t{0});
  header.add(std::uint16_t{0}).add(kDate).add(entry.crc32).add(size).add(size);
  header.add(static_cast<std::uint16_t>(name.size())).add(static_cast<std::uint16_t>(extra.bytes().size()));
  write(header.add(name).add(extra.bytes()).bytes());
  entry.offset = position_;
  if (!bytes.empty()) sink_(bytes);
  position_ += bytes.size();
  entries_.push_back(std::move(entry));
}

std::uint64_t StoredZipWriter::finish() {
  const std::uint64_t begin = position_;
  bool wide = begin >= options_.zip64_from;
  Record directory;
  for (const StoredZipEntry& entry : entries_) {
    const bool wide_size = entry.size >= options_.zip64_from;
    const bool wide_offset = entry.header_offset >= options_.zip64_from;
    wide = wide || wide_size || wide_offset;
    Record extra;
    if (wide_size || wide_offset) {
      extra.add(kExtra64).add(static_cast<std::uint16_t>((wide_size ? 16 : 0) + (wide_offset ? 8 : 0)));
      if (wide_size) extra.add(entry.size).add(entry.size);
      if (wide_offset) extra.add(entry.header_offset);
    }
    const auto size = wide_size ? kIn64 : static_cast<std::uint32_t>(entry.size);
    const auto version = wide_size || wide_offset ? kVersion64 : kVersion;
    directory.add(kDirectoryEntry).add(version).add(version).add(std::uint16_t{0}).add(std::uint16_t{0});
    directory.add(std::uint16_t{0}).add(kDate).add(entry.crc32).add(size).add(size);
    directory.add(static_cast<std::uint16_t>(entry.name.size()));
    directory.add(static_cast<std::uint16_t>(extra.bytes().size())).add(std::uint16_t{0}).add(std::uint16_t{0});
    directory.add(std::uint16_t{0}).add(std::uint32_t{0});
    directory.add(wide_offset ? kIn64 : static_cast<std::uint32_t>(entry.header_offset));
    directory.add(entry.name).add(extra.bytes());
  }
  write(directory.bytes());
  const std::uint64_t size = position_ - begin;
  const std::uint64_t count = entries_.size();
  Record end;
  if (wide) {
    end.add(kDirectoryEnd64).add(std::uint64_t{44}).add(kVersion64).add(kVersion64);
    end.add(std::uint32_t{0}).add(std::uint32_t{0}).add(count).add(count).add(size).add(begin);
    end.add(kDirectoryLocator64).add(std::uint32_t{0}).add(position_).add(std::uint32_t{1});
  }
  const auto short_count = wide ? kCountIn64 : static_cast<std::uint16_t>(count);
  end.add(kDirectoryEnd).add(std::uint16_t{0}).add(std::uint16_t{0}).add(short_count).add(short_count);
  end.add(wide ? kIn64 : static_cast<std::uint32_t>(size)).add(wide ? kIn64 : static_cast<std::uint32_t>(begin));
  write(end.add(std::uint16_t{0}).bytes());
  return position_;
}

}  // namespace stft::io
