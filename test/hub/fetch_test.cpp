#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "hub/hub_fixture.h"

namespace stft::test {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using Names = std::vector<std::string>;

constexpr const char* kTypes = "sentence_transformers.models.";

std::string module_list(const std::vector<std::pair<std::string, std::string>>& modules) {
  auto list = nlohmann::json::array();
  for (const auto& [path, type] : modules) {
    list.push_back({{"idx", list.size()}, {"name", "x"}, {"path", path}, {"type", kTypes + type}});
  }
  return list.dump();
}

}  // namespace

TEST_CASE("A model is downloaded into the layout of huggingface_hub, only what is needed", "[hub]") {
  HubFixture fixture;
  const hub::Snapshot snapshot = fixture.fetch();
  CHECK(snapshot.commit == HubServer::kCommit);
  CHECK(snapshot.directory == fixture.cached(std::string("snapshots/") + HubServer::kCommit));
  CHECK(fixture.files(std::string("snapshots/") + HubServer::kCommit) ==
        Names{"1_Pooling/config.json", "config.json", "model.safetensors", "modules.json", "sentence_bert_config.json",
              "tokenizer.json", "tokenizer_config.json"});
  CHECK(fixture.content(snapshot.directory + "/model.safetensors") == fixture.weights);
  CHECK(fixture.content(snapshot.directory + "/1_Pooling/config.json") == "{\"pooling_mode_mean_tokens\": true}");
  CHECK(fs::read_symlink(fixture.snapshot_path("1_Pooling/config.json")).string().starts_with("../../../blobs/"));
  CHECK(fs::read_symlink(fixture.snapshot_path("config.json")).string().starts_with("../../blobs/"));
  CHECK(fixture.content(fixture.cached("refs/main")) == HubServer::kCommit);
  CHECK(fixture.files(".no_exist") == Names{std::string(HubServer::kCommit) + "/config_sentence_transformers.json"});
  for (const std::string& blob : fixture.files("blobs")) {
    CHECK((blob.size() == 40 || blob.size() == 64));  // named by their hashes, and nothing incomplete
  }
  CHECK(fixture.content(fixture.directory.path("hub/CACHEDIR.TAG"))
            .starts_with("Signature: 8a477f597d28d172789f06886806bc55\n"));
  CHECK(fixture.warnings.empty());

  REQUIRE(!fixture.reports.empty());
  const hub::Progress& last = fixture.reports.back();
  CHECK(last.file.empty());
  CHECK(last.files_done == 7);
  CHECK(last.received_bytes == last.total_bytes);
  CHECK(last.total_bytes > static_cast<std::int64_t>(fixture.weights.size()));
}

TEST_CASE("What was downloaded is found again, without asking for a file", "[hub]") {
  HubFixture fixture;
  const std::string revision = GENERATE(as<std::string>{}, "main", "v1", HubServer::kCommit);
  fixture.fetch(revision);
  const auto found = hub::find_model({HubServer::kId, revision}, fixture.settings);
  REQUIRE(found.has_value());
  CHECK(found->commit == HubServer::kCommit);
  const auto before = fixture.server.requests().size();
  fixture.reports.clear();
  fixture.fetch(revision);
  CHECK(fixture.server.requests().size() == before + (revision == HubServer::kCommit ? 0 : 1));
  CHECK(fixture.reports.empty());
  fixture.settings.offline_variable = "HF_HUB_OFFLINE";
  CHECK(fixture.fetch(revision).commit == HubServer::kCommit);
  CHECK(fixture.warnings.empty());
}

TEST_CASE("A tokenizer alone is downloaded without the weights", "[hub]") {
  HubFixture fixture;
  fixture.fetch("main", hub::Wanted::kTokenizer);
  CHECK(fixture.files(std::string("snapshots/") + HubServer::kCommit) ==
        Names{"config.json", "modules.json", "sentence_bert_config.json", "tokenizer.json", "tokenizer_config.json"});
  CHECK_FALSE(hub::find_model({HubServer::kId}, fixture.settings).has_value());
}

TEST_CASE("Modules, shards and tokenizers in several files are found by what names them", "[hub]") {
  HubFixture fixture;
  fixture.server.add("modules.json",
                     module_list({{"0_Transformer", "Transformer"}, {"1_Pooling", "Pooling"}, {"2_Dense", "Dense"}}));
  fixture.server.add("0_Transformer/config.json", "{}");
  fixture.server.add("0_Transformer/vocab.txt", "[UNK]");
  fixture.server.add(
      "0_Transformer/model.safetensors.index.json",
      R"({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})");
  fixture.server.add("0_Transformer/model-00001-of-00002.safetensors", "first", Storage::kLfs);
  fixture.server.add("0_Transformer/model-00002-of-00002.safetensors", "second", Storage::kLfs);
  fixture.server.add("2_Dense/config.json", "{}");
  fixture.server.add("2_Dense/model.safetensors", "dense", Storage::kLfs);
  fixture.fetch();
  CHECK(fixture.files(std::string("snapshots/") + HubServer::kCommit) ==
        Names{"0_Transformer/config.json", "0_Transformer/model-00001-of-00002.safetensors",
              "0_Transformer/model-00002-of-00002.safetensors", "0_Transformer/model.safetensors.index.json",
              "0_Transformer/vocab.txt", "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors",
              "modules.json", "sentence_bert_config.json"});
}

TEST_CASE("A StaticEmbedding at the root, as model2vec names it, or in a folder brings its table and tokenizer",
          "[hub]") {
  const std::string folder = GENERATE(as<std::string>{}, ".", "0_StaticEmbedding");
  INFO(folder);
  HubFixture fixture;
  fixture.server.add("modules.json", module_list({{folder, "StaticEmbedding"}, {"1_Normalize", "Normalize"}}));
  fixture.server.add("0_StaticEmbedding/tokenizer.json", "{}");
  fixture.server.add("0_StaticEmbedding/model.safetensors", "table", Storage::kLfs);
  fixture.fetch();
  const auto files = fixture.files(std::string("snapshots/") + HubServer::kCommit);
  for (const std::string name : {"model.safetensors", "tokenizer.json"}) {
    const std::string wanted = folder == "." ? name : folder + "/" + name;
    CHECK(std::count(files.begin(), files.end(), wanted) == 1);
  }
}

TEST_CASE("An adapter's repository gives the adapter", "[hub]") {
  HubFixture fixture;
  HubServer server;
  fixture.settings.endpoint = server.url();
  server.add("adapter_config.json", R"({"base_model_name_or_path": "x/y"})");
  server.add("adapter_model.safetensors", "adapter", Storage::kLfs);
  fixture.fetch();
  CHECK(fixture.files(std::string("snapshots/") + HubServer::kCommit) ==
        Names{"adapter_config.json", "adapter_model.safetensors"});
}

TEST_CASE("Weights that only a pickle holds are refused before they are downloaded", "[hub]") {
  HubFixture fixture;
  HubServer server;
  fixture.settings.endpoint = server.url();
  server.add("config.json", "{}");
  server.add("tokenizer.json", "{}");
  server.add("pytorch_model.bin", "a pickle", Storage::kLfs);
  CHECK_THAT(message_of<UserError>([&] { fixture.fetch(); }),
             Contains("pytorch_model.bin") && Contains("pickle") && Contains("safetensors"));
  CHECK(server.count("HEAD", "pytorch_model") + server.count("GET", "pytorch_model") == 0);
}

TEST_CASE("A repository without a model says what it has", "[hub]") {
  HubFixture fixture;
  HubServer server;
  fixture.settings.endpoint = server.url();
  CHECK_THAT(message_of<UserError>([&] { fixture.fetch(); }), Contains("config.json") && Contains("no file"));
  server.add("weights.gguf", "x", Storage::kLfs);
  CHECK_THAT(message_of<UserError>([&] { fixture.fetch(); }),
             Contains("model.safetensors") && Contains("weights.gguf"));
}

TEST_CASE("Names that lead out of the repository are refused", "[hub]") {
  HubFixture fixture;
  const std::string outside = fixture.directory.path("evil");
  SECTION("a module's folder") {
    fixture.server.add("modules.json", module_list({{"", "Transformer"}, {"../../../../evil", "Dense"}}));
    CHECK_THAT(message_of<UserError>([&] { fixture.fetch(); }), Contains("../../../../evil"));
  }
  SECTION("a shard") {
    fixture.server.misbehave([&](const HubRequest& request) -> std::optional<HubReply> {
      HubReply reply = fixture.server.proper_reply(request);
      if (request.path.find("/api/") != std::string::npos) {
        auto listing = nlohmann::json::parse(reply.body);
        for (auto& entry : listing["siblings"]) {
          if (entry["rfilename"] == "model.safetensors") {
            entry["rfilename"] = "../../../../evil";
          }
        }
        reply.body = listing.dump();
      }
      return reply;
    });
    fixture.server.add("model.safetensors.index.json", R"({"weight_map": {"a": "../../../../evil"}})");
    CHECK_THAT(message_of<UserError>([&] { fixture.fetch(); }), Contains("'a' is not in a file of the model's folder"));
  }
  SECTION("an etag") {
    fixture.server.misbehave([&](const HubRequest& request) -> std::optional<HubReply> {
      if (request.method == "HEAD") {
        return HubReply{200, {{"ETag", "\"../../../../evil\""}, {"X-Repo-Commit", HubServer::kCommit}}, "x"};
      }
      return std::nullopt;
    });
    CHECK_THAT(message_of<SystemError>([&] { fixture.fetch(); }), Contains("ETag"));
  }
  SECTION("a commit") {
    fixture.server.misbehave([](const HubRequest&) {
      return HubReply{200, {}, R"({"sha": "../../../evil", "siblings": []})"};
    });
    CHECK_THAT(message_of<SystemError>([&] { fixture.fetch(); }), Contains("no listing of a model"));
  }
  CHECK_FALSE(fs::exists(outside));
}

TEST_CASE("The token goes to the hub and to no other place", "[hub]") {
  HubFixture fixture;
  HubServer storage;  // another port: another origin
  storage.add("model.safetensors", fixture.weights, Storage::kLfs);
  fixture.server.use_storage_at(storage.url());
  fixture.settings.token = "hf_secret";
  fixture.fetch();
  CHECK(fixture.content(fixture.snapshot_path("model.safetensors")) == fixture.weights);
  REQUIRE(!storage.requests().empty());
  for (const HubRequest& request : storage.requests()) {
    CHECK(request.header("authorization").empty());
  }
  for (const HubRequest& request : fixture.server.requests()) {
    CHECK(request.header("authorization") == "Bearer hf_secret");
  }
}

TEST_CASE("A model that moved is followed", "[hub]") {
  HubFixture fixture;
  fixture.server.misbehave([](const HubRequest& request) -> std::optional<HubReply> {
    if (request.path.starts_with("/old")) {
      return std::nullopt;
    }
    return request.path.find("hop=1") == std::string::npos
               ? std::optional(
                     HubReply{307,
                              {{"Location",
                                request.path + (request.path.find('?') == std::string::npos ? "?" : "&") + "hop=1"}}})
               : std::nullopt;
  });
  fixture.fetch();
  CHECK(fixture.content(fixture.snapshot_path("model.safetensors")) == fixture.weights);
}

TEST_CASE("Two that want a file at once download it once", "[hub]") {
  HubFixture fixture;
  fixture.server.misbehave([&](const HubRequest& request) -> std::optional<HubReply> {
    if (request.path.find("/storage/") != std::string::npos && fixture.server.count("GET", "/storage/") == 1) {
      // Time for the other to come to the lock.
      for (int i = 0; i < 200 && fixture.server.count("HEAD", "model.safetensors") < 2; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
    return std::nullopt;
  });
  std::string first;
  std::string second;
  const auto fetch = [&](std::string& directory) {
    directory = hub::fetch_model({HubServer::kId}, fixture.settings, {}).directory;
  };
  std::thread other([&] { fetch(first); });
  fetch(second);
  other.join();
  CHECK(first == second);
  CHECK(fixture.content(first + "/model.safetensors") == fixture.weights);
  CHECK(fixture.server.count("GET", "/storage/") == 1);
}

}  // namespace stft::test
