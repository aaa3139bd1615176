#include "io/checksum.h"

#include <catch2/catch.hpp>

#include <string>
#include <string_view>

#include "base/error.h"
#include "io/file.h"
#include "io/mapped_pages.h"
#include "io/temporary_directory.h"

namespace stft::io {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Values of the reference program: xxhsum -H3 (xxHash 0.8.1), python-xxhash's xxh3_64_hexdigest.
TEST_CASE("check-sums are XXH3-64", "[io][checksum]") {
  CHECK(checksum_of({}) == "xxh3:2d06800538d394c2");
  CHECK(checksum_of(bytes_of("a")) == "xxh3:e6c632b61e964e1f");
  CHECK(checksum_of(bytes_of("abc")) == "xxh3:78af5f94892f3950");
}

TEST_CASE("the pieces of a check-sum do not matter", "[io][checksum]") {
  std::string content(100'000, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 % 251);
  const std::string whole = checksum_of(bytes_of(content));
  for (const std::size_t piece : {1u, 7u, 256u, 4096u, 99'999u}) {
    Checksum checksum;
    for (std::size_t at = 0; at < content.size(); at += piece) {
      checksum.update(bytes_of(std::string_view(content).substr(at, piece)));
    }
    CHECK(checksum.text() == whole);
  }
  content[50'000] ^= 1;
  CHECK(checksum_of(bytes_of(content)) != whole);
}

TEST_CASE("check-sums of files", "[io][checksum]") {
  const test::TemporaryDirectory directory;
  CHECK(file_checksum(directory.write("three", "abc")) == "xxh3:78af5f94892f3950");
  CHECK(file_checksum(directory.write("empty", "")) == checksum_of({}));
  CHECK_THROWS_AS(file_checksum(directory.path("missing")), UserError);
  std::string content(9 << 20, 'x');  // several pieces, the last one short
  for (std::size_t i = 0; i < content.size(); i += 1000) {
    content[i] = static_cast<char>(i);
  }
  content.resize(content.size() - 77);
  CHECK(file_checksum(directory.write("large", content)) == checksum_of(bytes_of(content)));
}

TEST_CASE("the pages of a mapped file that were given back are read again", "[io][checksum]") {
  const test::TemporaryDirectory directory;
  const std::string content(100'000, 'y');
  const MappedFile file(directory.write("file", content));
  const std::span bytes(file.data(), file.size());
  for (const auto& piece : {bytes, bytes.subspan(1), bytes.first(10), bytes.first(0)}) {
    release_pages(piece);
    CHECK(file.text() == content);
  }
}

}  // namespace
}  // namespace stft::io
