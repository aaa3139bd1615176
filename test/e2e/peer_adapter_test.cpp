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

TEST_CASE("Python gives our embeddings of final/ and of the merged model", "[peer]") {
  const char* python = std::getenv("STFT_PEER_PYTHON");
  if (python == nullptr || *python == '\0') {
    WARN("STFT_PEER_PYTHON is not set, so Python was not asked");
    return;
  }
  const std::string texts = source_path("test/golden/data/sentences.txt");
  for (const char* adapter : {"{r: 4, lora_alpha: 8, target_modules: all-linear, use_rslora: true}",
                              "{r: 4, target_modules: [query, output.dense], use_dora: true, bias: all}",
                              "{r: 2, lora_alpha: 4, target_modules: [value], lora_bias: true, "
                              "modules_to_save: [intermediate]}",
                              "{r: 2, target_modules: [word_embeddings, query]}"}) {
    CAPTURE(adapter);
    const TemporaryDirectory directory;
    const std::string run = directory.path("run");
    const bool with_base = std::string(adapter).find("r: 4") == std::string::npos;
    train({run,
           2,
           {std::string("adapter=") + adapter, "train.learning_rate=1e-2", "checkpoint.load_best_model_at_end=false",
            "checkpoint.state_dict_type=SHARDED_STATE_DICT",
            with_base ? "checkpoint.adapter_only=false" : "checkpoint.adapter_only=true"}});
    succeed({"export", run + "/final", "--out", directory.path("merged"), "--merge-lora"});
    for (const char* name : {"final", "merged"}) {
      const std::string model = std::string(name) == "final" ? run + "/final" : directory.path("merged");
      succeed({"encode", model, "--input", texts, "--output", directory.path(std::string(name) + ".npy")});
    }
    Command command;
    command.program = python;
    command.arguments = {source_path("test/e2e/peer_adapter.py"),
                         run + "/final",
                         directory.path("merged"),
                         "--texts",
                         texts,
                         "--adapter-embeddings",
                         directory.path("final.npy"),
                         "--merged-embeddings",
                         directory.path("merged.npy"),
                         "--checkpoint",
                         run + "/checkpoint-30"};
    if (with_base) {
      command.arguments.emplace_back("--with-base");
    }
    const Outcome outcome = run_stft(command, 180);
    INFO(outcome.err);
    CHECK(outcome.exit_code == 0);
  }
}

TEST_CASE("Python loads a FULL checkpoint with the base in it, and a merged model that sees both ways", "[peer]") {
  const char* python = std::getenv("STFT_PEER_PYTHON");
  if (python == nullptr || *python == '\0') {
    WARN("STFT_PEER_PYTHON is not set, so Python was not asked");
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
