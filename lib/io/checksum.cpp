#include "io/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "base/error.h"
#include "io/file.h"
#include "io/mapped_pages.h"

namespace stft::io {

void Checksum::Release::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

Checksum::Checksum() : state_(XXH3_createState()) {
  if (state_ == nullptr || XXH3_64bits_reset(state_.get()) != XXH_OK) {
    throw SystemError("no memory for the state of a check-sum");
  }
}

Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::update(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  STFT_CHECK(XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()) == XXH_OK, "XXH3 refuses its input");
}

std::uint64_t Checksum::value() const {
  return XXH3_64bits_digest(state_.get());
}

std::string Checksum::text() const {
  return checksum_text(value());
}

std::string checksum_text(std::uint64_t value) {
  return fmt::format("xxh3:{:016x}", value);
}

std::string checksum_of(std::span<const std::byte> bytes) {
  Checksum checksum;
  checksum.update(bytes);
  return checksum.text();
}

std::string file_checksum(const std::string& path) {
  constexpr std::size_t kPieceBytes = 4 << 20;
  const MappedFile file(path);
  Checksum checksum;
  for (std::size_t at = 0; at < file.size(); at += kPieceBytes) {
    const std::span piece(file.data() + at, std::min(kPieceBytes, file.size() - at));
    checksum.update(piece);
    release_pages(piece);
  }
  return checksum.text();
}

}  // namespace stft::io
