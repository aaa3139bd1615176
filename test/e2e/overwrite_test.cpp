// Where a run writes: what it must not delete, what it must not copy, and directories that cannot be.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "e2e/model_copy.h"

namespace stft::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

// Files only: a module without files may or may not have a folder.
std::vector<std::string> files_under(const std::string& directory) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) {
      paths.push_back(fs::relative(entry.path(), directory).string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// A run in the directory's run/ that ended well.
Json finished_run(const TemporaryDirectory& directory) {
  Json recipe = small_recipe(directory);
  const Outcome outcome = run_stft({"train", write_recipe(directory, recipe)});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return recipe;
}

void check_keeps(const TemporaryDirectory& directory, const Json& recipe, const std::string& path) {
  const std::string recipe_path = write_recipe(directory, recipe);
  const auto before = files_under(directory.path("run"));
  const std::string log = read_bytes(directory.path("run/log.jsonl"));
  const Outcome outcome = run_stft({"train", recipe_path, "--overwrite"});
  INFO(outcome.err);
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.seconds < 5);
  CHECK_THAT(outcome.err, Contains("--overwrite") && Contains(path));
  CHECK(files_under(directory.path("run")) == before);
  CHECK((read_bytes(directory.path("run/log.jsonl")) == log));
}

// A file of the repository, copied to a place that --overwrite would delete.
std::string copied(const TemporaryDirectory& directory, const std::string& file, const std::string& to) {
  const std::string path = directory.path("run/" + to);
  fs::create_directories(fs::path(path).parent_path());
  fs::copy(source_path(file), path, fs::copy_options::recursive);
  return path;
}

}  // namespace

TEST_CASE("--overwrite does not delete what the new run reads", "[e2e][overwrite]") {
  const TemporaryDirectory directory;
  Json recipe = finished_run(directory);
  SECTION("the model") {
    recipe["model"]["name_or_path"] = directory.path("run/final");
    check_keeps(directory, recipe, directory.path("run/final"));
  }
  SECTION("the model, by another spelling of its path") {
    recipe["model"]["name_or_path"] = directory.path("run/eval/../final/");
    fs::create_directories(directory.path("run/eval"));
    check_keeps(directory, recipe, "final");
  }
  SECTION("the model, through a link from elsewhere") {
    fs::create_directory_symlink(directory.path("run/final"), directory.path("link"));
    recipe["model"]["name_or_path"] = directory.path("link");
    check_keeps(directory, recipe, directory.path("link"));
  }
  SECTION("a data file") {
    const std::string path = copied(directory, "test/golden/data/pairs.jsonl", "checkpoint-1/pairs.jsonl");
    recipe["data"]["train"][0]["path"] = path;
    check_keeps(directory, recipe, path);
  }
  SECTION("a data file that a pattern names") {
    const std::string path = copied(directory, "test/golden/data/pairs.jsonl", "eval/pairs.jsonl");
    recipe["data"]["train"][0]["path"] = directory.path("run/eval/*.jsonl");
    check_keeps(directory, recipe, path);
  }
  SECTION("an evaluator's file") {
    const std::string path = copied(directory, "test/golden/data/beir/corpus.jsonl", "eval/corpus.jsonl");
    Json evaluator = beir_evaluator();
    evaluator["corpus"]["path"] = path;
    recipe["evaluators"] = Json::array({evaluator});
    check_keeps(directory, recipe, path);
  }
  SECTION("an evaluator's BEIR directory") {
    const std::string path = copied(directory, "test/golden/data/beir", "eval/beir");
    recipe["evaluators"] =
        Json::array({{{"type", "InformationRetrievalEvaluator"}, {"name", "x"}, {"beir", path}, {"split", "test"}}});
    check_keeps(directory, recipe, path);
  }
}

TEST_CASE("--overwrite leaves files of others alone", "[e2e][overwrite]") {
  const TemporaryDirectory directory;
  Json recipe = finished_run(directory);
  recipe["data"]["train"][0]["path"] = copied(directory, "test/golden/data/pairs.jsonl", "mine/pairs.jsonl");
  directory.write("run/notes.txt", "keep me");
  const Outcome outcome = run_stft({"train", write_recipe(directory, recipe), "--overwrite"});
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(read_bytes(directory.path("run/notes.txt")) == "keep me");
  CHECK(fs::exists(directory.path("run/mine/pairs.jsonl")));
  CHECK(fs::exists(directory.path("run/final/model.safetensors")));
}

TEST_CASE("a run inside the model's directory is not copied into its own model", "[e2e][overwrite]") {
  const std::string folder = GENERATE("run", "runs/deep/one");
  const ModelCopy model;
  Json recipe = model.recipe();
  recipe["run"]["output_dir"] = model.path(folder);
  const auto expected = files_under(model.path(""));
  const std::string path = write_recipe(model.directory(), recipe);
  const Outcome outcome = run_stft({"train", path, "--nproc", "2"});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(files_under(model.path(folder + "/final")) == expected);
  const Outcome again = run_stft({"train", path, "--overwrite"});
  INFO(again.err);
  REQUIRE(again.exit_code == 0);
  CHECK(files_under(model.path(folder + "/final")) == expected);
}

TEST_CASE("an output directory that cannot be is refused at once", "[e2e][overwrite]") {
  const TemporaryDirectory directory;
  Json recipe = small_recipe(directory);
  directory.write("file", "content");
  for (const char* output : {"file", "file/run", "file/deep/run"}) {
    recipe["run"]["output_dir"] = directory.path(output);
    const Outcome outcome = run_stft({"train", write_recipe(directory, recipe), "--nproc", "2"});
    INFO(output << ": " << outcome.err);
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.seconds < 5);
    CHECK_THAT(outcome.err, Contains("run.output_dir") && Contains(directory.path("file")));
  }
  CHECK(read_bytes(directory.path("file")) == "content");
}

}  // namespace stft::test
