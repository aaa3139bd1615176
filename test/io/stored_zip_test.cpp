#include "io/stored_zip.h"

#include <catch2/catch.hpp>

#include <random>
#include <string>

#include "base/error.h"
#include "io/temporary_directory.h"

namespace stft::io {
namespace {

using test::message_of;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string archive(StoredZipOptions options = {}) {
  std::string written;
  StoredZipWriter writer([&](std::span<const std::byte> bytes) { written += text_of(bytes); }, options);
  writer.add("archive/data.pkl", "pickle");
  writer.add("archive/data/0", std::string(1000, 'd'));
  writer.add("archive/empty", "");
  const std::uint64_t length = writer.finish();
  CHECK(length == written.size());
  return written;
}

TEST_CASE("a stored archive reads back, in 32-bit and 64-bit form", "[io][stored_zip]") {
  // 0: everything is in 64-bit records; 500: only the offsets and sizes from there on.
  for (const std::uint64_t zip64_from : {std::uint64_t{0xFFFFFFFF}, std::uint64_t{0}, std::uint64_t{500}}) {
    const std::string bytes = archive({64, zip64_from});
    CHECK((bytes.find("PK\x06\x06") != std::string::npos) == (zip64_from < 0xFFFFFFFF));
    const auto zip = StoredZip::open(bytes_of(bytes), "a file");
    REQUIRE(zip.entries().size() == 3);
    for (const StoredZipEntry& entry : zip.entries()) {
      CHECK(entry.offset % 64 == 0);
      CHECK(zip.crc_matches(entry));
    }
    CHECK(text_of(zip.bytes(*zip.find("archive/data.pkl"))) == "pickle");
    CHECK(text_of(zip.bytes(*zip.find("archive/data/0"))) == std::string(1000, 'd'));
    CHECK(zip.find("archive/empty")->size == 0);
    CHECK(zip.find("data.pkl") == nullptr);
  }
}

// The check value of the ZIP CRC for "123456789".
TEST_CASE("the check-sum of an entry is the ZIP CRC", "[io][stored_zip]") {
  std::string bytes;
  StoredZipWriter writer([&](std::span<const std::byte> piece) { bytes += text_of(piece); });
  writer.add("a", "123456789");
  writer.finish();
  const auto zip = StoredZip::open(bytes_of(bytes), "a file");
  CHECK(zip.entries()[0].crc32 == 0xCBF43926);
  bytes[zip.entries()[0].offset] ^= 1;
  CHECK_FALSE(zip.crc_matches(zip.entries()[0]));
}

TEST_CASE("an archive is found in front of its comment only", "[io][stored_zip]") {
  std::string bytes = archive();
  bytes[bytes.size() - 2] = 3;
  bytes += "abc";
  CHECK(StoredZip::open(bytes_of(bytes), "a file").entries().size() == 3);
  CHECK_THAT(message_of<UserError>([&] { StoredZip::open(bytes_of(bytes + "d"), "a file"); }),
             Catch::Contains("a file: ") && Catch::Contains("its directory is missing"));
}

TEST_CASE("two entries of one name are refused", "[io][stored_zip]") {
  std::string bytes;
  StoredZipWriter writer([&](std::span<const std::byte> piece) { bytes += text_of(piece); });
  writer.add("a", "1");
  writer.add("a", "2");
  writer.finish();
  CHECK_THAT(message_of<UserError>([&] { StoredZip::open(bytes_of(bytes), "f"); }), Catch::Contains("'a' twice"));
}

TEST_CASE("any bytes are a UserError or an archive inside them", "[io][stored_zip]") {
  std::mt19937 random(6);
  for (const std::uint64_t zip64_from : {std::uint64_t{0xFFFFFFFF}, std::uint64_t{0}}) {
    const std::string bytes = archive({64, zip64_from});
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const std::string cut = bytes.substr(0, size);
      CHECK_THROWS_AS(StoredZip::open(bytes_of(cut), "f"), UserError);
    }
    for (int trial = 0; trial < 20'000; ++trial) {
      std::string damaged = bytes;
      damaged[random() % damaged.size()] ^= static_cast<char>(1u << random() % 8);
      message_of<UserError>([&] {
        const auto zip = StoredZip::open(bytes_of(damaged), "f");
        for (const StoredZipEntry& entry : zip.entries()) zip.crc_matches(entry);
      });
    }
  }
}

}  // namespace
}  // namespace stft::io
