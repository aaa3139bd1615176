// Adapters that runs leave, and their merges, in Python's sentence-transformers and peft. Needs STFT_PEER_PYTHON as
// peer_test does.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
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

}  // namespace stft::test
