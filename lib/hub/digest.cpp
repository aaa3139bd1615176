#include "hub/digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace stft::hub {
namespace {

constexpr std::size_t kBlockBytes = 64;
constexpr std::array<std::uint32_t, 8> kStartOfSha1 = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
constexpr std::array<std::uint32_t, 8> kStartOfSha256 = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> kRoundsOfSha256 = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

Hash::Hash(HashKind kind) : kind_(kind), state_(kind == HashKind::kSha1 ? kStartOfSha1 : kStartOfSha256) {}

void Hash::update(std::span<const std::byte> bytes) {
  size_bytes_ += bytes.size();
  while (!bytes.empty()) {
    if (pending_size_ == 0 && bytes.size() >= kBlockBytes) {
      absorb(bytes.data());
      bytes = bytes.subspan(kBlockBytes);
      continue;
    }
    const std::size_t taken = std::min(kBlockBytes - pending_size_, bytes.size());
    std::memcpy(pending_.data() + pending_size_, bytes.data(), taken);
    pending_size_ += taken;
    bytes = bytes.subspan(taken);
    if (pending_size_ == kBlockBytes) {
      absorb(pending_.data());
      pending_size_ = 0;
    }
  }
}

std::string Hash::hex() const {
  Hash rest = *this;
  const std::uint64_t bits = size_bytes_ * 8;
  std::array<std::byte, 2 * kBlockBytes> tail{};
  tail[0] = std::byte{0x80};
  const std::size_t padding = (pending_size_ < 56 ? 56 : 120) - pending_size_;
  for (std::size_t i = 0; i < 8; ++i) {
    tail[padding + i] = static_cast<std::byte>(bits >> (56 - 8 * i));
  }
  rest.update(std::span(tail).first(padding + 8));
  std::string text;
  for (std::size_t i = 0; i < (kind_ == HashKind::kSha1 ? 5U : 8U); ++i) {
    text += fmt::format("{:08x}", rest.state_[i]);
  }
  return text;
}

void Hash::absorb(const std::byte* block) {
  std::array<std::uint32_t, 80> words;
  for (std::size_t i = 0; i < 16; ++i) {
    words[i] = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      words[i] = words[i] << 8 | std::to_integer<std::uint32_t>(block[4 * i + j]);
    }
  }
  kind_ == HashKind::kSha1 ? absorb_sha1(words) : absorb_sha256(words);
}

void Hash::absorb_sha1(std::array<std::uint32_t, 80>& words) {
  for (std::size_t i = 16; i < 80; ++i) {
    words[i] = std::rotl(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t i = 0; i < 80; ++i) {
    const std::uint32_t mixed = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999
                                : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1
                                : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc
                                         : (b ^ c ^ d) + 0xca62c1d6;
    const std::uint32_t next = std::rotl(a, 5) + mixed + e + words[i];
    e = d;
    d = c;
    c = std::rotl(b, 30);
    b = a;
    a = next;
  }
  const std::array<std::uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 5; ++i) {
    state_[i] += added[i];
  }
}

void Hash::absorb_sha256(std::array<std::uint32_t, 80>& words) {
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t x = words[i - 15];
    const std::uint32_t y = words[i - 2];
    words[i] = words[i - 16] + (std::rotr(x, 7) ^ std::rotr(x, 18) ^ (x >> 3)) + words[i - 7] +
               (std::rotr(y, 17) ^ std::rotr(y, 19) ^ (y >> 10));
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) +
                                kRoundsOfSha256[i] + words[i];
    const std::uint32_t second =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const std::array<std::uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) {
    state_[i] += added[i];
  }
}

std::optional<Hash> hash_for_etag(std::string_view etag, std::int64_t size_bytes) {
  if (!is_hex(etag) || (etag.size() != 40 && etag.size() != 64)) {
    return std::nullopt;
  }
  Hash hash(etag.size() == 64 ? HashKind::kSha256 : HashKind::kSha1);
  if (etag.size() == 40) {
    const std::string header = fmt::format("blob {}", size_bytes);
    hash.update(std::string_view(header.c_str(), header.size() + 1));  // with the zero byte
  }
  return hash;
}

}  // namespace stft::hub
