#include "hub/digest.h"

#include <catch2/catch.hpp>
#include <string>

namespace stft::hub {
namespace {

std::string hash_of(HashKind kind, const std::string& text) {
  Hash hash(kind);
  hash.update(text);
  return hash.hex();
}

}  // namespace

// The examples of FIPS 180-4.
TEST_CASE("Hashes of known texts", "[hub]") {
  const std::string two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  CHECK(hash_of(HashKind::kSha1, "abc") == "a9993e364706816aba3e25717850c26c9cd0d89d");
  CHECK(hash_of(HashKind::kSha1, two_blocks) == "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
  CHECK(hash_of(HashKind::kSha1, "") == "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  CHECK(hash_of(HashKind::kSha256, "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hash_of(HashKind::kSha256, two_blocks) == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hash_of(HashKind::kSha256, std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  CHECK(hash_of(HashKind::kSha1, std::string(1000000, 'a')) == "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

TEST_CASE("The pieces of a hash do not matter", "[hub]") {
  const std::string text(1000, 'x');
  for (const HashKind kind : {HashKind::kSha1, HashKind::kSha256}) {
    for (const std::size_t piece : {1U, 7U, 55U, 56U, 63U, 64U, 65U, 129U}) {
      Hash hash(kind);
      for (std::size_t begin = 0; begin < text.size(); begin += piece) {
        hash.update(std::string_view(text).substr(begin, piece));
      }
      CAPTURE(piece);
      CHECK(hash.hex() == hash_of(kind, text));
    }
  }
}

TEST_CASE("An etag tells how its file is hashed", "[hub]") {
  // git hash-object of an empty file and of "hello\n".
  CHECK(hash_for_etag(std::string(40, '0'), 0)->hex() == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  auto blob = hash_for_etag(std::string(40, 'f'), 6);
  blob->update("hello\n");
  CHECK(blob->hex() == "ce013625030ba8dba906f756967f9e9ca394464a");
  auto large = hash_for_etag(std::string(64, 'a'), 3);
  large->update("abc");
  CHECK(large->hex() == hash_of(HashKind::kSha256, "abc"));
  CHECK_FALSE(hash_for_etag("some-other-etag", 3).has_value());
  CHECK_FALSE(hash_for_etag(std::string(40, 'g'), 3).has_value());
}

}  // namespace stft::hub
