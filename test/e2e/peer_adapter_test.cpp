// Adapters that runs leave, and their merges, in Python's sentence-transformers and peft. Needs STFT_PEER_PYTHON as
// peer_test does.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "e2e/checkpoint_run.h"

namespace stft::test {

namespace {

// A run of 2 ranks with a SHARDED checkpoint, and what Python finds in it. `more`: settings.
class AdapterRun {
 public:
  explicit AdapterRun(std::vector<std::string> more) {
    more.insert(more.end(), {"train.learning_rate=1e-2", "checkpoint.load_best_model_at_end=false",
                             "checkpoint.state_dict_type=SHARDED_STATE_DICT"});
    train({run(), 2, more});
    merge("merged", {});
    encode(run() + "/final", "final");
    encode(directory_.path("merged"), "merged");
  }

  std::string run() const { return directory_.path("run"); }

  void merge(const std::string& name, const std::vector<std::string>& options) const {
    std::vector<std::string> arguments = {"export", run() + "/final", "--out", directory_.path(name), "--merge-lora"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    succeed(arguments);
  }

  // The file of a model's embeddings.
  std::string encode(const std::string& model, const std::string& name) const {
    const std::string file = directory_.path(name + ".npy");
    succeed({"encode", model, "--input", texts(), "--output", file});
    return file;
  }

  std::string directory(const std::string& name) const { return directory_.path(name); }

  void check_in_python(const std::string& python, const std::vector<std::string>& options) const {
    Command command;
    command.program = python;
    command.arguments = {source_path("test/e2e/peer_adapter.py"),
                         run() + "/final",
                         directory("merged"),
                         "--texts",
                         texts(),
                         "--adapter-embeddings",
                         directory("final.npy"),
                         "--merged-embeddings",
                         directory("merged.npy")};
    command.arguments.insert(command.arguments.end(), options.begin(), options.end());
    const Outcome outcome = run_stft(command, 180);
    INFO(outcome.err);
    CHECK(outcome.exit_code == 0);
  }

 private:
  static std::string texts() { return source_path("test/golden/data/sentences.txt"); }

  TemporaryDirectory directory_;
};

std::string peer_python() {
  const char* python = std::getenv("STFT_PEER_PYTHON");
  if (python == nullptr || *python == '\0') {
    WARN("STFT_PEER_PYTHON is not set, so Python was not asked");
    return {};
  }
  return python;
}

}  // namespace

TEST_CASE("Python gives our embeddings of final/ and of the merged model", "[peer]") {
  const std::string python = peer_python();
  if (python.empty()) {
    return;
  }
  for (const char* adapter : {"{r: 4, lora_alpha: 8, target_modules: all-linear, use_rslora: true}",
                              "{r: 4, target_modules: [query, output.dense], use_dora: true, bias: all}",
                              "{r: 2, lora_alpha: 4, target_modules: [value], lora_bias: true, "
                              "modules_to_save: [intermediate]}",
                              "{r: 2, target_modules: [word_embeddings, query]}"}) {
    CAPTURE(adapter);
    const bool with_base = std::string(adapter).find("r: 4") == std::string::npos;
    const AdapterRun run({std::string("adapter=") + adapter,
                          with_base ? "checkpoint.adapter_only=false" : "checkpoint.adapter_only=true"});
    std::vector<std::string> options = {"--checkpoint", run.run() + "/checkpoint-30"};
    if (with_base) {
      options.emplace_back("--with-base");
    }
    run.check_in_python(python, options);
  }
}

TEST_CASE("a QLoRA adapter gives the same embeddings in Python, on either base", "[peer]") {
  const std::string python = peer_python();
  if (python.empty()) {
    return;
  }
  const AdapterRun run({"adapter={type: qlora, r: 4, lora_alpha: 8, target_modules: all-linear}",
                        "quantization={bnb_4bit_quant_type: nf4, bnb_4bit_use_double_quant: false, "
                        "bnb_4bit_compute_dtype: fp32}"});
  run.merge("dequantized", {"--base", "dequantized"});
  const std::string quantized = run.encode(run.directory("dequantized"), "dequantized");
  run.check_in_python(python, {"--checkpoint", run.run() + "/checkpoint-30", "--quantized-embeddings", quantized});
}

TEST_CASE("Python loads a FULL checkpoint with the base in it, and a merged model that sees both ways", "[peer]") {
  const std::string python = peer_python();
  if (python.empty()) {
    return;
  }
  const std::string texts = source_path("test/golden/data/sentences.txt");
  const TemporaryDirectory directory;
  const auto embed = [&](const std::string& model, const std::string& name) {
    succeed({"encode", model, "--input", texts, "--output", directory.path(name)});
    return directory.path(name);
  };
  const auto check_python = [&](std::vector<std::string> arguments) {
    Command command;
    command.program = python;
    command.arguments = std::move(arguments);
    const Outcome outcome = run_stft(command, 180);
    INFO(outcome.err);
    CHECK(outcome.exit_code == 0);
  };
  copy_tree(source_path("test/golden/tiny_bert"), directory.path("base"));
  const std::vector<std::string> common = {"train.learning_rate=1e-2", "train.max_steps=15",
                                           "checkpoint.load_best_model_at_end=false"};
  auto settings = common;
  settings.insert(settings.end(),
                  {"model.name_or_path=" + directory.path("base"),
                   "adapter={r: 4, target_modules: [query], bias: all, modules_to_save: [intermediate]}",
                   "checkpoint.state_dict_type=FULL_STATE_DICT", "checkpoint.adapter_only=false"});
  train({directory.path("run"), 2, settings});
  std::filesystem::remove_all(directory.path("base"));
  const std::string saved = directory.path("run/checkpoint-15");
  succeed({"export", saved, "--merge-lora", "--out", directory.path("merged")});
  check_python({source_path("test/e2e/peer_adapter.py"), saved, directory.path("merged"), "--texts", texts,
                "--adapter-embeddings", embed(saved, "saved.npy"), "--merged-embeddings",
                embed(directory.path("merged"), "merged.npy")});

  settings = common;
  settings.insert(settings.end(), {"model.name_or_path=" + source_path("test/golden/tiny_llama"), "model.causal=false",
                                   "adapter={r: 4, target_modules: [q_proj]}"});
  train({directory.path("both_ways"), 2, settings});
  succeed({"export", directory.path("both_ways/final"), "--merge-lora", "--out", directory.path("both_ways.merged")});
  check_python({source_path("test/e2e/peer_encode_file.py"), directory.path("both_ways.merged"), "--input", texts,
                "--found", embed(directory.path("both_ways/final"), "both_ways.npy")});
}

}  // namespace stft::test
