#include "hub/settings.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "base/error.h"
#include "io/temporary_directory.h"

namespace stft::hub {
namespace {

using Catch::Contains;
using Variables = std::map<std::string, std::string>;

Settings read(const Variables& variables) {
  return read_settings([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

}  // namespace

TEST_CASE("The cache lies where huggingface_hub has it", "[hub]") {
  CHECK(read({{"HOME", "/h"}}).cache_directory == "/h/.cache/huggingface/hub");
  CHECK(read({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}).cache_directory == "/x/huggingface/hub");
  CHECK(read({{"HOME", "/h"}, {"HF_HOME", "~/hf"}}).cache_directory == "/h/hf/hub");
  CHECK(read({{"HOME", "/h"}, {"HF_HOME", "$BASE/${SUB}/x"}, {"BASE", "/b"}, {"SUB", "s"}}).cache_directory ==
        "/b/s/x/hub");
  CHECK(read({{"HF_HOME", "/hf"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}).cache_directory == "/old");
  CHECK(read({{"HUGGINGFACE_HUB_CACHE", "/old"}, {"HF_HUB_CACHE", "/new"}}).cache_directory == "/new");
  CHECK(read({{"HF_HUB_CACHE", "/new"}, {"SENTENCE_TRANSFORMERS_HOME", "/st"}}).cache_directory == "/st");
}

TEST_CASE("The token comes from a variable, else from its file", "[hub]") {
  test::TemporaryDirectory directory;
  directory.write("token", " hf_file\n");
  const std::string home = directory.path("");
  CHECK(read({{"HF_HOME", home}}).token == "hf_file");
  CHECK_THAT(read({{"HF_HOME", home}}).token_origin, Contains("token"));
  CHECK(read({{"HF_HOME", home}, {"HUGGING_FACE_HUB_TOKEN", "hf_old"}}).token == "hf_old");
  CHECK(read({{"HF_HOME", home}, {"HUGGING_FACE_HUB_TOKEN", "hf_old"}, {"HF_TOKEN", "hf_new\n"}}).token == "hf_new");
  CHECK(read({{"HF_HOME", "/nowhere"}, {"HF_TOKEN_PATH", directory.path("token")}}).token == "hf_file");
  CHECK_FALSE(read({{"HF_HOME", home}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}}).token.has_value());
  CHECK_FALSE(read({{"HF_HOME", "/nowhere"}}).token.has_value());
  const std::string message = test::message_of<UserError>([] {
    read({{"HF_HOME", "/nowhere"}, {"HF_TOKEN", "secret\x01token"}});
  });
  CHECK_THAT(message, Contains("HF_TOKEN"));
  CHECK_THAT(message, !Contains("secret"));
}

TEST_CASE("Endpoint, offline mode, links and timeouts", "[hub]") {
  CHECK(read({}).endpoint == "https://huggingface.co");
  CHECK(read({{"HF_ENDPOINT", "http://127.0.0.1:80/"}}).endpoint == "http://127.0.0.1:80");
  CHECK_THROWS_WITH(read({{"HF_ENDPOINT", "hub.example"}}), Contains("HF_ENDPOINT"));
  CHECK_THROWS_WITH(read({{"HF_ENDPOINT", "file:///etc"}}), Contains("HF_ENDPOINT"));
  CHECK_FALSE(read({}).is_offline());
  CHECK(read({{"HF_HUB_OFFLINE", "yes"}}).offline_variable == "HF_HUB_OFFLINE");
  CHECK(read({{"TRANSFORMERS_OFFLINE", "1"}}).offline_variable == "TRANSFORMERS_OFFLINE");
  CHECK_FALSE(read({{"HF_HUB_OFFLINE", "0"}, {"TRANSFORMERS_OFFLINE", "1"}}).is_offline());
  CHECK_FALSE(read({{"HF_HUB_DISABLE_SYMLINKS", "true"}}).uses_links);
  CHECK(read({{"HF_HUB_DOWNLOAD_TIMEOUT", "30"}}).download_timeout_s == 30);
  CHECK(read({{"HF_HUB_ETAG_TIMEOUT", "5"}}).metadata_timeout_s == 5);
  for (const char* value : {"ten", "0", "-1", "1e9", "nan", "10s"}) {
    CAPTURE(value);
    CHECK_THROWS_WITH(read({{"HF_HUB_DOWNLOAD_TIMEOUT", value}}), Contains("HF_HUB_DOWNLOAD_TIMEOUT"));
  }
}

}  // namespace stft::hub
