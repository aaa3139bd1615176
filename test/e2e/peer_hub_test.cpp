// One cache for Python's huggingface_hub and for stft. Needs STFT_PEER_PYTHON, a python that has it (versions in
// test/golden/README.md); without that variable nothing is tested, and a warning says so.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "e2e/hub_run.h"

namespace stft::test {
namespace {

std::string peer_python() {
  const char* python = std::getenv("STFT_PEER_PYTHON");
  if (python == nullptr || *python == '\0') {
    WARN("STFT_PEER_PYTHON is not set, so Python's huggingface_hub was not asked");
    return {};
  }
  return python;
}

Outcome run(const std::string& program, std::vector<std::string> arguments, std::vector<std::string> environment) {
  Command command{std::move(arguments)};
  command.program = program;
  command.environment = std::move(environment);
  return run_stft(command, 180);
}

// A hub with a model whose large files are of another origin: redirects within one the peer takes for the hub's own.
struct PeerHub {
  PeerHub() {
    serve_tiny_bert(server);
    serve_tiny_bert(storage);
    server.use_storage_at(storage.url());
    environment = hub_environment(server, directory.path("hf"));
  }

  TemporaryDirectory directory;
  HubServer server;
  HubServer storage;
  std::vector<std::string> environment;
};

}  // namespace

TEST_CASE("the peer loads what stft downloaded, without network", "[peer]") {
  const std::string python = peer_python();
  if (python.empty()) {
    return;
  }
  PeerHub hub;
  const std::string texts = hub.directory.write("texts.txt", "small flowers\n");
  const Outcome encoded = run(
      "", {"encode", HubServer::kId, "--revision", "v1", "--input", texts, "--output", hub.directory.path("v.jsonl")},
      hub.environment);
  INFO(encoded.err);
  REQUIRE(encoded.exit_code == 0);
  const auto requests = hub.server.requests().size();
  hub.environment.push_back("HF_HUB_OFFLINE=1");
  const Outcome outcome = run(python,
                              {source_path("test/e2e/peer_hub.py"), "read", HubServer::kId, "v1", HubServer::kCommit,
                               hub.directory.path("v.jsonl")},
                              hub.environment);
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(hub.server.requests().size() == requests);
}

TEST_CASE("stft reads what the peer downloaded, without network", "[peer]") {
  const std::string python = peer_python();
  if (python.empty()) {
    return;
  }
  const std::string way = GENERATE(as<std::string>{}, "load", "snapshot");
  INFO(way);
  PeerHub hub;
  const Outcome outcome =
      run(python, {source_path("test/e2e/peer_hub.py"), way, HubServer::kId, "main"}, hub.environment);
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  hub.environment.push_back("HF_HUB_OFFLINE=1");
  const auto requests = hub.server.requests().size();
  const std::string texts = hub.directory.write("texts.txt", "small flowers\n");
  const Outcome encoded =
      run("", {"encode", HubServer::kId, "--input", texts, "--output", hub.directory.path("hub.npy")}, hub.environment);
  INFO(encoded.err);
  CHECK(encoded.exit_code == 0);
  CHECK(encoded.err.find("warning") == std::string::npos);
  CHECK(hub.server.requests().size() == requests);
  const std::string model = source_path("test/golden/tiny_bert");
  CHECK(run_stft({"encode", model, "--input", texts, "--output", hub.directory.path("directory.npy")}).exit_code == 0);
  CHECK(read_bytes(hub.directory.path("hub.npy")) == read_bytes(hub.directory.path("directory.npy")));
}

}  // namespace stft::test
