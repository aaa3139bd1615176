// A model without a transformer: one table of token vectors.
#include <catch2/catch.hpp>
#include <filesystem>

#include "e2e/process.h"
#include "e2e/run_files.h"

namespace stft::test {

TEST_CASE("a StaticEmbedding is trained, saved in shards, resumed, exported and encoded with", "[e2e]") {
  const TemporaryDirectory directory;
  Json recipe = small_recipe(directory);
  recipe["model"] = {{"name_or_path", source_path("test/golden/tiny_static")}};
  recipe["train"]["max_steps"] = 4;
  recipe["checkpoint"] = {{"save_strategy", "steps"}, {"save_steps", 2}, {"state_dict_type", "SHARDED_STATE_DICT"}};
  const std::string path = write_recipe(directory, recipe);
  const auto succeed = [](std::vector<std::string> arguments) {
    const Outcome outcome = run_stft(arguments);
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return outcome;
  };
  CHECK(succeed({"train", path, "--nproc", "2"}).err.find("texts of any length") != std::string::npos);
  const std::string run = directory.path("run");
  succeed({"verify", run + "/checkpoint-4"});
  succeed({"train", path, "--nproc", "1", "--resume", run + "/checkpoint-2", "--set",
           "run.output_dir=" + directory.path("resumed")});
  CHECK(weight_difference(directory.path("resumed/final/model.safetensors"), run + "/final/model.safetensors") < 1e-6);
  succeed({"export", run + "/checkpoint-4", "--out", directory.path("exported")});
  CHECK(read_bytes(directory.path("exported/model.safetensors")) == read_bytes(run + "/final/model.safetensors"));
  CHECK_FALSE(std::filesystem::exists(directory.path("exported/config.json")));

  const std::string texts = directory.write("texts.txt", "small flowers\n\nthe state of being in love\n");
  const auto encoded = [&](const std::string& model, const std::string& name) {
    succeed({"encode", model, "--input", texts, "--output", directory.path(name)});
    return read_bytes(directory.path(name));
  };
  CHECK(encoded(run + "/checkpoint-4", "checkpoint.npy") == encoded(run + "/final", "final.npy"));
  CHECK(encoded(source_path("test/golden/tiny_static"), "before.npy") != read_bytes(directory.path("final.npy")));
  CHECK(succeed({"tokenize", run + "/final", "--text", "small flowers"}).out.find("[283,302]") != std::string::npos);
}

}  // namespace stft::test
