// Published weights: stft's vectors are Python's. Needs STFT_PEER_PYTHON, and the models that scripts/fetch_models.py
// and scripts/make_smollm2.py make below .deps/models; one that is not there is left out, and a warning says so.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "e2e/process.h"
#include "e2e/run_files.h"

namespace stft::test {
namespace {

constexpr int kTexts = 200;

// Definitions of WordNet, one of them empty and one of many pieces.
std::string write_texts(const TemporaryDirectory& directory) {
  std::ifstream pairs(source_path("test/golden/data/pairs.jsonl"));
  std::string texts = "\n";
  std::string all;
  std::string line;
  for (int i = 0; i < kTexts && std::getline(pairs, line); ++i) {
    const std::string text = Json::parse(line).at("anchor").get<std::string>();
    texts += text + "\n";
    all += text + "; ";
  }
  return directory.write("texts.txt", texts + all + "\n");
}

Outcome run_program(const std::string& program, std::vector<std::string> arguments) {
  Command command{std::move(arguments)};
  command.program = program;
  return run_stft(command, 400);
}

}  // namespace

TEST_CASE("vectors of published models equal the peer's, on one rank and on two", "[peer]") {
  const char* python = std::getenv("STFT_PEER_PYTHON");
  if (python == nullptr || *python == '\0') {
    WARN("STFT_PEER_PYTHON is not set, so Python's sentence-transformers was not asked");
    return;
  }
  for (const char* name : {"all-MiniLM-L6-v2", "paraphrase-MiniLM-L3-v2", "all-mpnet-base-v2", "smollm2-135m"}) {
    INFO(name);
    const std::string model = source_path(std::string(".deps/models/") + name);
    if (!std::filesystem::exists(model)) {
      WARN(model << " is not there");
      continue;
    }
    const TemporaryDirectory directory;
    const std::string texts = write_texts(directory);
    for (const char* ranks : {"1", "2"}) {
      const std::string output = directory.path(std::string("vectors") + ranks + ".npy");
      const Outcome outcome = run_stft({"encode", model, "--input", texts, "--output", output, "--nproc", ranks}, 400);
      INFO(outcome.err);
      REQUIRE(outcome.exit_code == 0);
      const Outcome peer = run_program(python, {source_path("test/e2e/peer_encode_file.py"), model, "--input", texts,
                                                "--found", output, "--compute", "float32"});
      INFO(peer.err);
      CHECK(peer.exit_code == 0);
      const size_t figure = peer.err.find("peer_encode_file: largest");
      WARN(name << ", " << ranks << " ranks: " << (figure == std::string::npos ? "" : peer.err.substr(figure)));
    }
  }
}

}  // namespace stft::test
