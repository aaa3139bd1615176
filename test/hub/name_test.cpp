#include <catch2/catch.hpp>
#include <string>

#include "hub/hub_config.h"

namespace stft::hub {

TEST_CASE("Ids of models are those of huggingface_hub", "[hub]") {
  for (const char* id :
       {"foo", "foo/bar", "123", "Foo-BAR_foo.bar123", "sentence-transformers/all-MiniLM-L6-v2", "_a/b_", "a.b/c.d"}) {
    CAPTURE(id);
    CHECK(is_repo_id(id));
  }
  for (const char* id : {"",         "/",        "a/",          "/a",   "a/b/c", "datasets/foo/bar",
                         ".repo_id", "foo--bar", "foo.git",     "a..b", "-a",    "a-",
                         "a/-b",     "a./b",     ".",           "..",   "./a",   "../a",
                         "a b",      "a\\b",     "caf\xc3\xa9", "a\nb", "a/b\n"}) {
    CAPTURE(id);
    CHECK_FALSE(is_repo_id(id));
  }
  CHECK(is_repo_id(std::string(96, 'a') + "/" + std::string(96, 'b')));
  CHECK_FALSE(is_repo_id(std::string(97, 'a')));
}

TEST_CASE("Revisions and paths stay where they belong", "[hub]") {
  for (const char* revision :
       {"main", "v1.0", "refs/pr/1", "feature/x-y", "0123456789abcdef0123456789abcdef01234567"}) {
    CAPTURE(revision);
    CHECK(is_revision(revision));
  }
  for (const char* revision :
       {"", "..", "../x", "a/../b", "/main", "main/", "a//b", "a b", "a\nb", "a\\b", "a:b", "a..b"}) {
    CAPTURE(revision);
    CHECK_FALSE(is_revision(revision));
  }
  CHECK_FALSE(is_revision(std::string(201, 'a')));
  CHECK(is_commit_hash("0123456789abcdef0123456789abcdef01234567"));
  CHECK_FALSE(is_commit_hash("0123456789ABCDEF0123456789abcdef01234567"));
  CHECK_FALSE(is_commit_hash("0123456"));
  CHECK(is_relative_path("1_Pooling/config.json"));
  for (const char* path : {"../x", "/etc/passwd", "a/../../b", "", "a/", "./a", "a\\..\\b"}) {
    CAPTURE(path);
    CHECK_FALSE(is_relative_path(path));
  }
}

}  // namespace stft::hub
