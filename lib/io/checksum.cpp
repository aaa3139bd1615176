#include "io/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "base/error.h"
#include "io/file.h"

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
  return fmt::format("xxh3:{:016x}", value());
}

std::string checksum_of(std::span<const std::byte> bytes) {
  Checksum checksum;
  checksum.update(bytes);
  return checksum.text();
}

std::string file_checksum(const std::string& path) {
  const MappedFile file(path);
  return checksum_of({file.data(), file.size()});
}

}  // namespace stft::io
