// The models that runs leave, in Python's sentence-transformers. Needs STFT_PEER_PYTHON, a python that has it (versions
// in test/golden/README.md); without that variable nothing is tested, and a warning says so.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "e2e/process.h"
#include "e2e/run_files.h"

namespace stft::test {
namespace {

// A golden model with settings of the recipe's model block.
struct Variant {
  const char* model;
  Json settings;
  const char* expected;  // what the peer is asked to find
};

Json recipe_of(const TemporaryDirectory& directory, const Variant& variant) {
  Json recipe = small_recipe(directory);
  recipe["model"] = variant.settings;
  recipe["model"]["name_or_path"] = source_path(std::string("test/golden/") + variant.model);
  return recipe;
}

// Empty when there is none.
std::string peer_python() {
  const char* python = std::getenv("STFT_PEER_PYTHON");
  if (python == nullptr || *python == '\0') {
    WARN("STFT_PEER_PYTHON is not set, so Python's sentence-transformers was not asked");
    return {};
  }
  return python;
}

void check_peer(const std::string& python, std::vector<std::string> arguments) {
  Command command;
  command.program = python;
  command.arguments = std::move(arguments);
  const Outcome outcome = run_stft(command, 180);
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
}

void train(const TemporaryDirectory& directory, const Json& recipe, int ranks) {
  const Outcome outcome =
      run_stft({"train", write_recipe(directory, recipe), "--overwrite", "--nproc", std::to_string(ranks)});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
}

// The metrics of the last evaluation, as a file.
std::string last_metrics(const TemporaryDirectory& directory) {
  const RunLog log = read_log(directory.path("run"));
  REQUIRE(log.evals.size() >= 2);
  CHECK(log.evals.front().at("metrics") != log.evals.back().at("metrics"));
  return directory.write("metrics.json", log.evals.back().at("metrics").dump());
}

}  // namespace

TEST_CASE("without training the peer computes its own embeddings, under every pooling", "[peer]") {
  const std::string python = peer_python();
  if (python.empty()) {
    return;
  }
  const std::vector<Variant> variants = {{"tiny_bert", Json::object(), "mean"},
                                         {"tiny_bert", {{"pooling", "cls"}}, "cls"},
                                         {"tiny_bert", {{"pooling", "max"}}, "max"},
                                         {"tiny_bert", {{"normalize", false}}, "mean_without_normalize"},
                                         {"tiny_bert_dense", Json::object(), "dense"}};
  for (const Variant& variant : variants) {
    INFO(variant.expected);
    const TemporaryDirectory directory;
    Json recipe = recipe_of(directory, variant);
    recipe["train"]["learning_rate"] = 0;
    train(directory, recipe, 2);
    check_peer(python, {source_path("scripts/peer_check.py"), directory.path("run/final"), "--sentences",
                        source_path("test/golden/data/sentences.txt"), "--expected",
                        source_path("test/golden/embeddings_tiny.safetensors"), "--tensor", variant.expected});
  }
}

TEST_CASE("the peer finds in the trained model the metrics that the run logged", "[peer]") {
  const std::string python = peer_python();
  if (python.empty()) {
    return;
  }
  const TemporaryDirectory directory;
  const Outcome outcome = run_stft({"train", "configs/tiny.yaml", "--set", "run.output_dir=" + directory.path("run"),
                                    "--set", "launch.threads_per_rank=1", "--nproc", "2"});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  check_peer(python, {source_path("test/e2e/peer_encode.py"), directory.path("run/final"), "--dimension", "32",
                      "--beir", source_path("test/golden/data/beir"), "--metrics", last_metrics(directory)});
}

TEST_CASE("the peer loads a trained model with another pooling, a dense layer and prompts", "[peer]") {
  const std::string python = peer_python();
  if (python.empty()) {
    return;
  }
  const std::vector<Variant> variants = {
      {"tiny_bert_dense", {{"pooling", "cls"}}, "16"},
      {"tiny_bert", {{"pooling", "max"}, {"dense", {{"out_features", 8}}}, {"similarity_fn_name", "dot"}}, "8"}};
  for (const Variant& variant : variants) {
    INFO(variant.model);
    const TemporaryDirectory directory;
    Json recipe = recipe_of(directory, variant);
    recipe["model"]["prompts"] = {{"query", "small: "}, {"document", "some state: "}};
    recipe["data"]["train"][0]["prompts"] = {{"anchor", "query"}, {"positive", "document"}};
    recipe["train"]["max_steps"] = 10;
    recipe["train"]["learning_rate"] = 0.2;
    recipe["train"]["eval_strategy"] = "steps";
    recipe["train"]["eval_on_start"] = true;
    recipe["evaluators"] = Json::array({beir_evaluator()});
    train(directory, recipe, 2);
    check_peer(python, {source_path("test/e2e/peer_encode.py"), directory.path("run/final"), "--dimension",
                        variant.expected, "--prompt", "query", "small: ", "--prompt", "document", "some state: ",
                        "--beir", source_path("test/golden/data/beir"), "--metrics", last_metrics(directory)});
  }
}

TEST_CASE("encode writes what the peer's encode returns", "[peer]") {
  const std::string python = peer_python();
  if (python.empty()) {
    return;
  }
  struct Case {
    const char* file;
    std::vector<std::string> flags;
  };
  const std::vector<Case> cases = {{"e.npy", {}},
                                   {"e.jsonl", {"--truncate-dim", "20"}},
                                   {"e.safetensors", {"--prompt-name", "query"}},
                                   {"e.npy", {"--precision", "int8"}},
                                   {"e.safetensors", {"--precision", "uint8", "--truncate-dim", "20"}},
                                   {"e.npy", {"--precision", "binary", "--truncate-dim", "20"}},
                                   {"e.jsonl", {"--precision", "ubinary"}}};
  const std::string model = source_path("test/golden/tiny_bert_dense");
  const std::string mean = source_path("test/golden/tiny_bert");
  const std::string input = source_path("test/golden/data/sentences.txt");
  for (const Case& one : cases) {
    const TemporaryDirectory directory;
    const std::string output = directory.path(one.file);
    for (const std::string& directory_of_model : {model, mean}) {
      std::vector<std::string> encode = {"encode", directory_of_model, "--input", input,        "--output",
                                         output,   "--nproc",          "2",       "--overwrite"};
      encode.insert(encode.end(), one.flags.begin(), one.flags.end());
      const Outcome outcome = run_stft(encode);
      INFO(outcome.err);
      REQUIRE(outcome.exit_code == 0);
      std::vector<std::string> compare = {
          source_path("test/e2e/peer_encode_file.py"), directory_of_model, "--input", input, "--found", output};
      compare.insert(compare.end(), one.flags.begin(), one.flags.end());
      check_peer(python, compare);
    }
  }
}

}  // namespace stft::test
