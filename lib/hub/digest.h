// The hashes that hubs name files by (FIPS 180-4: SHA-1 and SHA-256). They show that a download is whole; the hub is
// trusted for the rest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace stft::hub {

enum class HashKind { kSha1, kSha256 };

// A hash of bytes that come in any pieces.
class Hash {
 public:
  explicit Hash(HashKind kind);

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }

  std::string hex() const;  // of all bytes so far

 private:
  void absorb(const std::byte* block);
  void absorb_sha1(std::array<std::uint32_t, 80>& words);
  void absorb_sha256(std::array<std::uint32_t, 80>& words);

  HashKind kind_;
  std::array<std::uint32_t, 8> state_{};
  std::array<std::byte, 64> pending_{};
  std::size_t pending_size_ = 0;
  std::uint64_t size_bytes_ = 0;
};

// What checks a file of `size_bytes` against its etag: SHA-256 when that has 64 digits (git LFS), git's blob hash when
// it has 40; nothing for etags of another form. The file's bytes are what is left to feed.
std::optional<Hash> hash_for_etag(std::string_view etag, std::int64_t size_bytes);

}  // namespace stft::hub
