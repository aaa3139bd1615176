#include "hub/cache.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/error.h"
#include "hub/hub_fixture.h"

namespace stft::test {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

// What Python's huggingface_hub leaves after loading a model, written by hand in its layout.
class PythonCache {
 public:
  explicit PythonCache(HubFixture& fixture) : fixture_(fixture) {
    for (const char* file : {"config.json", "modules.json", "1_Pooling/config.json", "tokenizer.json",
                             "tokenizer_config.json", "sentence_bert_config.json", "model.safetensors"}) {
      add(file, std::string("blob of ") + (std::string(file) == "modules.json" ? "" : file));
    }
    write("blobs/etag-modules.json",
          R"([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
              {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])");
    write("refs/main", HubServer::kCommit);
    write(std::string(".no_exist/") + HubServer::kCommit + "/config_sentence_transformers.json", "");
  }

  void add(const std::string& file, const std::string& content) {
    std::string name = "etag-" + file;
    std::replace(name.begin(), name.end(), '/', '-');
    write("blobs/" + name, content);
    const fs::path link(fixture_.snapshot_path(file));
    fs::create_directories(link.parent_path());
    fs::create_symlink(fs::path(fixture_.cached("blobs/" + name)).lexically_relative(link.parent_path()), link);
  }

  void write(const std::string& relative, const std::string& content) {
    const fs::path path(fixture_.cached(relative));
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
  }

 private:
  HubFixture& fixture_;
};

}  // namespace

TEST_CASE("A cache that Python wrote is used without network", "[hub]") {
  HubFixture fixture;
  PythonCache cache(fixture);
  fixture.settings.offline_variable = "HF_HUB_OFFLINE";
  const hub::Snapshot snapshot = fixture.fetch();
  CHECK(snapshot.commit == HubServer::kCommit);
  CHECK(fixture.content(snapshot.directory + "/config.json") == "blob of config.json");
  CHECK(fixture.server.requests().empty());
  CHECK(fixture.warnings.empty());
  CHECK(fixture.fetch(HubServer::kCommit).directory == snapshot.directory);
  CHECK(hub::find_model({HubServer::kId}, fixture.settings).has_value());
}

TEST_CASE("A commit that the cache has whole is used without asking the hub", "[hub]") {
  HubFixture fixture;
  PythonCache cache(fixture);
  CHECK(fixture.fetch(HubServer::kCommit).commit == HubServer::kCommit);
  CHECK(fixture.server.requests().empty());
}

TEST_CASE("What a cache does not know is told when there is no hub to ask", "[hub]") {
  HubFixture fixture;
  PythonCache cache(fixture);
  fs::remove_all(fixture.cached(".no_exist"));
  CHECK_FALSE(hub::find_model({HubServer::kId}, fixture.settings).has_value());
  fixture.settings.offline_variable = "HF_HUB_OFFLINE";
  CHECK(fixture.fetch().commit == HubServer::kCommit);
  REQUIRE(fixture.warnings.size() == 1);
  CHECK_THAT(fixture.warnings.front(), Contains("config_sentence_transformers.json"));

  // The listing that newer versions leave knows it.
  const std::string listing = fixture.cached(std::string("trees/") + HubServer::kCommit + ".json");
  cache.write(std::string("trees/") + HubServer::kCommit + ".json",
              R"({"format_version": 1, "files": {"config.json": {"size": 1, "blob_id": "x"}}})");
  CHECK(hub::find_model({HubServer::kId}, fixture.settings).has_value());
  cache.write(std::string("trees/") + HubServer::kCommit + ".json",
              R"({"format_version": 1, "files": {"config_sentence_transformers.json": {"size": 1, "blob_id": "x"}}})");
  CHECK_FALSE(hub::find_model({HubServer::kId}, fixture.settings).has_value());
  CHECK_THAT(message_of<UserError>([&] { fixture.fetch(); }), Contains("config_sentence_transformers.json"));
  cache.write(std::string("trees/") + HubServer::kCommit + ".json", "{\"files\": 7");
  CHECK(fixture.fetch().commit == HubServer::kCommit);
}

TEST_CASE("Offline, a cache that lacks something is an error that names it", "[hub]") {
  HubFixture fixture;
  fixture.settings.offline_variable = "TRANSFORMERS_OFFLINE";
  CHECK_THAT(message_of<UserError>([&] { fixture.fetch(); }),
             Contains("TRANSFORMERS_OFFLINE") && Contains("revision 'main'") && Contains("some-org/tiny.model"));
  PythonCache cache(fixture);
  fs::remove(fixture.snapshot_path("model.safetensors"));
  CHECK_THAT(message_of<UserError>([&] { fixture.fetch(); }), Contains("model.safetensors"));
  CHECK_THAT(message_of<UserError>([&] { fixture.fetch("v7"); }), Contains("revision 'v7'"));
  CHECK(fixture.server.requests().empty());
}

TEST_CASE("A cached revision is used with a warning when the hub cannot be reached or refuses", "[hub]") {
  HubFixture fixture;
  PythonCache cache(fixture);
  SECTION("no hub") {
    fixture.settings.endpoint = "http://127.0.0.1:1";
  }
  SECTION("errors for ever") {
    fixture.server.misbehave([](const HubRequest&) { return HubReply{503}; });
  }
  SECTION("access is gone") {
    fixture.server.misbehave([](const HubRequest&) { return HubReply{401, {{"X-Error-Code", "RepoNotFound"}}}; });
  }
  CHECK(fixture.fetch().commit == HubServer::kCommit);
  REQUIRE(fixture.warnings.size() == 1);
  CHECK_THAT(fixture.warnings.front(), Contains("as the cache has it"));
  CHECK(fixture.server.requests().size() <= 1);  // a copy is at hand: no waiting
}

TEST_CASE("A branch that moved brings only what changed", "[hub]") {
  HubFixture fixture;
  fixture.fetch();
  const std::string next(40, 'a');
  fixture.server.move_main(next);
  fixture.server.add("config.json", "{\"model_type\": \"bert\", \"new\": 1}");
  const int downloads = fixture.server.count("GET", "/storage/");
  const hub::Snapshot snapshot = fixture.fetch();
  CHECK(snapshot.commit == next);
  CHECK(fixture.server.count("GET", "/storage/") == downloads);
  CHECK(fixture.content(snapshot.directory + "/config.json") == "{\"model_type\": \"bert\", \"new\": 1}");
  CHECK(fixture.content(snapshot.directory + "/model.safetensors") == fixture.weights);
  CHECK(fixture.content(fixture.cached("refs/main")) == next);
  CHECK(fixture.content(fixture.snapshot_path("config.json")) == "{\"model_type\": \"bert\"}");
}

TEST_CASE("A damaged file of a snapshot or a blob is brought again", "[hub]") {
  HubFixture fixture;
  fixture.fetch();
  fs::resize_file(fixture.snapshot_path("model.safetensors"), 1000);  // through the link: the blob
  fixture.fetch();
  CHECK(fixture.content(fixture.snapshot_path("model.safetensors")) == fixture.weights);
}

TEST_CASE("Where links cannot be, snapshots hold the files themselves", "[hub]") {
  HubFixture fixture;
  fixture.settings.uses_links = false;
  fixture.fetch();
  CHECK(fs::is_regular_file(fs::symlink_status(fixture.snapshot_path("model.safetensors"))));
  CHECK(fixture.content(fixture.snapshot_path("model.safetensors")) == fixture.weights);
  CHECK(fixture.files("blobs").empty());
  const int requests = fixture.server.count("GET", "");
  fixture.fetch();
  CHECK(fixture.server.count("GET", "") == requests + 1);  // the listing
}

TEST_CASE("A full cache that cannot be written is used", "[hub]") {
  HubFixture fixture;
  fixture.fetch();
  // A file where the folder should be: no revision can be written.
  fs::remove_all(fixture.cached("refs"));
  std::ofstream(fixture.cached("refs")) << "";
  CHECK(fixture.fetch().commit == HubServer::kCommit);
  CHECK_THAT(fixture.warnings.back(), Contains("refs"));
}

TEST_CASE("What the disk refuses is told with operation and path", "[hub]") {
  HubFixture fixture;
  std::ofstream(fixture.settings.cache_directory) << "a file in the way";
  CHECK_THAT(message_of<SystemError>([&] { fixture.fetch(); }),
             Contains("creating directory") && Contains(fixture.settings.cache_directory));
}

}  // namespace stft::test
