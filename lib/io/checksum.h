// XXH3-64 check-sums of bytes and files: they find damage, they do not resist an adversary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct XXH3_state_s;

namespace stft::io {

// A check-sum of bytes that come in any pieces; the pieces do not matter.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&& other) noexcept;
  Checksum& operator=(Checksum&& other) noexcept;

  void update(std::span<const std::byte> bytes);

  std::uint64_t value() const;  // of all bytes so far
  std::string text() const;     // "xxh3:" and 16 lower-case hexadecimal digits

 private:
  struct Release {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Release> state_;
};

std::string checksum_text(std::uint64_t value);  // as Checksum::text of that value

std::string checksum_of(std::span<const std::byte> bytes);  // as text()

// The check-sum of a regular file's content, as text(). A few MiB are in memory at a time. Errors of MappedFile.
std::string file_checksum(const std::string& path);

}  // namespace stft::io
