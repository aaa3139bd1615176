#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "hub/hub_fixture.h"
#include "hub/repository.h"

namespace stft::test {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

bool is_storage(const HubRequest& request) {
  return request.path.starts_with("/storage/");
}

// What the last request for a large file asked for.
std::string last_range(const HubServer& server) {
  std::string range = "none";
  for (const HubRequest& request : server.requests()) {
    if (is_storage(request)) {
      range = request.header("range");
    }
  }
  return range;
}

bool is_listing(const HubRequest& request) {
  return request.path.starts_with("/api/");
}

}  // namespace

TEST_CASE("A connection that is cut is gone on from where it ended", "[hub]") {
  HubFixture fixture;
  int storage_requests = 0;
  fixture.server.misbehave([&](const HubRequest& request) -> std::optional<HubReply> {
    if (!is_storage(request) || request.method != "GET") {
      return std::nullopt;
    }
    HubReply reply = fixture.server.proper_reply(request);
    if (++storage_requests < 3) {
      reply.cut_after = 100000;
    }
    return reply;
  });
  fixture.fetch();
  CHECK(fixture.content(fixture.snapshot_path("model.safetensors")) == fixture.weights);
  std::vector<std::string> ranges;
  for (const HubRequest& request : fixture.server.requests()) {
    if (is_storage(request)) {
      ranges.push_back(request.header("range"));
    }
  }
  CHECK(ranges == std::vector<std::string>{"", "bytes=100000-", "bytes=200000-"});
  CHECK(fixture.reports.back().received_bytes == fixture.reports.back().total_bytes);
}

TEST_CASE("What an interrupted process left is gone on from", "[hub]") {
  HubFixture fixture;
  bool cuts = true;
  fixture.server.misbehave([&](const HubRequest& request) -> std::optional<HubReply> {
    if (!cuts || !is_storage(request)) {
      return std::nullopt;
    }
    HubReply reply = fixture.server.proper_reply(request);
    reply.cut_after = request.header("range").empty() ? 120000 : 0;
    return reply;
  });
  CHECK_THAT(message_of<SystemError>([&] { fixture.fetch(); }),
             Contains("model.safetensors") && Contains("tried 3 times"));
  cuts = false;
  CHECK_FALSE(fs::exists(fixture.cached("refs/main")));
  SECTION("as it was") {
    fixture.fetch();
    CHECK(last_range(fixture.server) == "bytes=120000-");
  }
  SECTION("damaged meanwhile") {
    for (const std::string& name : fixture.files("blobs")) {
      if (name.ends_with(".incomplete")) {
        std::fstream(fixture.cached("blobs/" + name), std::ios::in | std::ios::out).write("other bytes", 11);
      }
    }
    fixture.fetch();
    CHECK(last_range(fixture.server).empty());
  }
  SECTION("longer than the file") {
    for (const std::string& name : fixture.files("blobs")) {
      if (name.ends_with(".incomplete")) {
        fs::resize_file(fixture.cached("blobs/" + name), 400000);
      }
    }
    fixture.fetch();
  }
  SECTION("a server that knows no ranges") {
    fixture.server.misbehave([&](const HubRequest& request) -> std::optional<HubReply> {
      HubRequest whole = request;
      whole.headers.erase("range");
      return fixture.server.proper_reply(whole);
    });
    fixture.fetch();
  }
  CHECK(fixture.content(fixture.snapshot_path("model.safetensors")) == fixture.weights);
}

TEST_CASE("Content of another length or hash is an error, and is not kept", "[hub]") {
  HubFixture fixture;
  std::string expected;
  std::string wrong = fixture.weights;
  SECTION("shorter, and it says so") {
    wrong.resize(1000);
    expected = "sent 1000 of 300000 bytes";
  }
  SECTION("longer") {
    wrong += "more";
    expected = "more than the 300000 bytes";
  }
  SECTION("another byte") {
    wrong[5] ^= 1;
    expected = "hash";
  }
  fixture.server.misbehave([&](const HubRequest& request) -> std::optional<HubReply> {
    if (!is_storage(request)) {
      return std::nullopt;
    }
    if (!request.header("range").empty()) {
      return HubReply{206, {{"Content-Range", "bytes " + request.header("range").substr(6) + "299999/300000"}}, ""};
    }
    return HubReply{200, {}, wrong};
  });
  const std::string message = message_of<SystemError>([&] { fixture.fetch(); });
  CHECK_THAT(message, Contains(expected) && Contains("model.safetensors") && Contains(fixture.server.url()));
  CHECK_FALSE(fs::exists(fixture.snapshot_path("model.safetensors")));
  CHECK(fixture.server.count("GET", "/storage/") <= 4);
}

TEST_CASE("A small file of another hash is an error too", "[hub]") {
  HubFixture fixture;
  fixture.server.misbehave([&](const HubRequest& request) -> std::optional<HubReply> {
    HubReply reply = fixture.server.proper_reply(request);
    if (request.path.ends_with("/tokenizer.json")) {
      reply.body[0] = '[';
    }
    return reply;
  });
  CHECK_THAT(message_of<SystemError>([&] { fixture.fetch(); }), Contains("hash") && Contains("tokenizer.json"));
}

TEST_CASE("Passing troubles are tried again", "[hub]") {
  HubFixture fixture;
  int troubles = 0;
  const bool is_at_file = GENERATE(false, true);
  const int status = GENERATE(403, 408, 429, 500, 503);
  if (status == 403 && !is_at_file) {
    return;  // the hub means it
  }
  fixture.server.misbehave([&](const HubRequest& request) -> std::optional<HubReply> {
    if (is_storage(request) == is_at_file && ++troubles < 3) {
      return HubReply{status, {{"Retry-After", "0"}}, "later"};
    }
    return std::nullopt;
  });
  fixture.fetch();
  CHECK(troubles >= 3);
  CHECK(fixture.content(fixture.snapshot_path("model.safetensors")) == fixture.weights);
}

TEST_CASE("A hub that fails for ever is given up", "[hub]") {
  HubFixture fixture;
  SECTION("at the listing") {
    fixture.server.misbehave([](const HubRequest&) { return HubReply{500, {{"X-Error-Message", "on fire"}}, "x"}; });
  }
  SECTION("at a file") {
    fixture.server.misbehave(
        [](const HubRequest& request) { return is_storage(request) ? std::optional(HubReply{500}) : std::nullopt; });
  }
  const std::string message = message_of<hub::HubUnreachable>([&] { fixture.fetch(); });
  CHECK_THAT(message, Contains("500") && Contains("tried 3 times"));
  CHECK(std::count(message.begin(), message.end(), '\n') == 0);
}

TEST_CASE("A hub that is not there is an error of the system", "[hub]") {
  HubFixture fixture;
  fixture.settings.endpoint = "http://127.0.0.1:1";
  CHECK_THAT(message_of<SystemError>([&] { fixture.fetch(); }), Contains("127.0.0.1:1") && Contains("tried 3 times"));
}

TEST_CASE("A silent hub is given up after the timeout", "[hub]") {
  HubFixture fixture;
  fixture.settings.attempts = 1;
  SECTION("at the listing") {
    fixture.server.misbehave([](const HubRequest&) { return HubReply{.never_comes = true}; });
  }
  SECTION("in the middle of a file") {
    fixture.server.misbehave([&](const HubRequest& request) -> std::optional<HubReply> {
      return is_storage(request) ? std::optional(HubReply{.never_comes = true}) : std::nullopt;
    });
  }
  const double start = monotonic_seconds();
  CHECK_THAT(message_of<SystemError>([&] { fixture.fetch(); }), Contains("slow") || Contains("timed out"));
  CHECK(monotonic_seconds() - start < 20);
}

TEST_CASE("A download is stopped when somebody asks for it", "[hub]") {
  HubFixture fixture;
  fixture.settings.download_timeout_s = 60;
  fixture.should_stop = [&] { return fixture.server.count("GET", "/storage/") > 0; };
  fixture.server.misbehave([&](const HubRequest& request) -> std::optional<HubReply> {
    return is_storage(request) ? std::optional(HubReply{.never_comes = true}) : std::nullopt;
  });
  const double start = monotonic_seconds();
  CHECK_THAT(message_of<hub::Stopped>([&] { fixture.fetch(); }), Contains("stopped"));
  CHECK(monotonic_seconds() - start < 20);
}

TEST_CASE("Refusals say what to do", "[hub]") {
  HubFixture fixture;
  fixture.settings.token_file = "/home/me/token";
  const auto refuse = [&](int status, const std::string& code) {
    fixture.server.misbehave([=](const HubRequest&) { return HubReply{status, {{"X-Error-Code", code}}, "{}"}; });
    return message_of<UserError>([&] { fixture.fetch(); });
  };
  CHECK_THAT(refuse(401, "RepoNotFound"), Contains("no such model") && Contains("HF_TOKEN") &&
                                              Contains("no directory of this name") && Contains("/home/me/token"));
  CHECK_THAT(refuse(401, "GatedRepo"), Contains("granted access") && Contains("HF_TOKEN") &&
                                           Contains(fixture.server.url() + "/" + HubServer::kId));
  CHECK_THAT(refuse(403, "GatedRepo"), Contains("granted access"));
  CHECK_THAT(refuse(404, "RepoNotFound"), Contains("no such model"));
  fixture.settings.token = "hf_secret";
  fixture.settings.token_origin = "HF_TOKEN";
  for (const int status : {401, 403}) {
    const std::string message = refuse(status, "GatedRepo");
    CHECK_THAT(message, Contains("the token of HF_TOKEN") || Contains("(the token of HF_TOKEN may not)"));
    CHECK_THAT(message, !Contains("hf_secret"));
  }
  fixture.server.misbehave(nullptr);
  CHECK_THAT(message_of<UserError>([&] { fixture.fetch("v9"); }), Contains("'v9'") && Contains("it has main, v1"));
}

TEST_CASE("A file that the listing has and the hub has not is named", "[hub]") {
  HubFixture fixture;
  fixture.server.misbehave([&](const HubRequest& request) -> std::optional<HubReply> {
    return request.path.ends_with("/tokenizer.json") ? std::optional(HubReply{404, {{"X-Error-Code", "EntryNotFound"}}})
                                                     : std::nullopt;
  });
  CHECK_THAT(message_of<UserError>([&] { fixture.fetch(); }), Contains("no file 'tokenizer.json'"));
}

TEST_CASE("Answers that are none of a hub are refused", "[hub]") {
  HubFixture fixture;
  const auto answer = [&](const std::string& body) {
    fixture.server.misbehave([=](const HubRequest&) { return HubReply{200, {}, body}; });
    return message_of<SystemError>([&] { fixture.fetch(); });
  };
  for (const char* body : {"", "<html>log in here</html>", "[]", "{}", R"({"sha": 7, "siblings": []})",
                           R"({"sha": "0123456789abcdef0123456789abcdef01234567", "siblings": {}})"}) {
    CAPTURE(body);
    CHECK_THAT(answer(body), Contains("no listing of a model"));
  }
  CHECK_THAT(answer(std::string(1000, '[')), Contains("no listing of a model"));
  fixture.server.misbehave([&](const HubRequest& request) -> std::optional<HubReply> {
    if (is_listing(request)) {
      return std::nullopt;
    }
    HubReply reply = fixture.server.proper_reply(request);
    reply.headers.erase("X-Repo-Commit");
    return reply;
  });
  CHECK_THAT(message_of<SystemError>([&] { fixture.fetch(); }), Contains("X-Repo-Commit"));
  fixture.server.misbehave([](const HubRequest& request) {
    return std::optional(HubReply{302, {{"Location", request.path}}, ""});
  });
  CHECK_THAT(message_of<SystemError>([&] { fixture.fetch(); }), Contains("redirects"));
  fixture.server.misbehave([](const HubRequest&) {
    return std::optional(HubReply{302, {{"Location", "file:///etc/passwd"}}, ""});
  });
  CHECK_THAT(message_of<SystemError>([&] { fixture.fetch(); }), Contains("none of https or http"));
}

TEST_CASE("A huge listing is read, an endless one is not", "[hub]") {
  HubFixture fixture;
  fixture.server.misbehave([&](const HubRequest& request) -> std::optional<HubReply> {
    HubReply reply = fixture.server.proper_reply(request);
    if (is_listing(request)) {
      auto listing = nlohmann::json::parse(reply.body);
      for (int i = 0; i < 50000; ++i) {
        listing["siblings"].push_back({{"rfilename", "data/" + std::to_string(i) + ".parquet"}});
      }
      reply.body = listing.dump();
    }
    return reply;
  });
  fixture.fetch();
  CHECK(fixture.files(std::string("snapshots/") + HubServer::kCommit).size() == 7);
  fixture.settings.largest_listing_bytes = 1 << 20;
  CHECK_THAT(message_of<SystemError>([&] { fixture.fetch(); }), Contains("longer than it may be"));
}

}  // namespace stft::test
