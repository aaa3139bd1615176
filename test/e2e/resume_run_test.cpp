// Runs that go on: field reports about saving and resuming, and what --resume makes of a directory.
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "e2e/checkpoint_run.h"

namespace stft::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

const std::vector<std::string> kKinds = {"FULL_STATE_DICT", "SHARDED_STATE_DICT"};

// 60 pairs in batches of 12, five steps an epoch, AdamW; saved every second step, nothing evaluated.
Json saving_recipe(const TemporaryDirectory& directory) {
  Json recipe = small_recipe(directory);
  recipe["data"]["train"][0]["limit"] = 60;
  recipe["train"]["optim"] = "adamw";
  recipe["train"]["learning_rate"] = 0.002;
  recipe["train"]["lr_scheduler_type"] = "linear";
  recipe["train"]["max_steps"] = 8;
  recipe["checkpoint"] = {{"save_strategy", "steps"},
                          {"save_steps", 2},
                          {"save_total_limit", nullptr},
                          {"state_dict_type", "SHARDED_STATE_DICT"}};
  return recipe;
}

// The retrieval metric decides; a checkpoint for each evaluation.
Json best_recipe(const TemporaryDirectory& directory) {
  Json recipe = saving_recipe(directory);
  recipe["evaluators"] = Json::array({beir_evaluator()});
  recipe["train"]["eval_strategy"] = "steps";
  recipe["train"]["eval_steps"] = 2;
  recipe["checkpoint"]["load_best_model_at_end"] = true;
  recipe["checkpoint"]["metric_for_best_model"] = "beir_cosine_ndcg@10";
  return recipe;
}

class SavingRun {
 public:
  explicit SavingRun(const Json& recipe, const TemporaryDirectory& directory)
      : path_(directory.path("run")), recipe_(write_recipe(directory, recipe)) {}

  const std::string& path() const { return path_; }
  std::string path(const std::string& name) const { return path_ + "/" + name; }
  std::string final_bytes() const { return read_bytes(path("final/model.safetensors")); }

  TrainCall call(int ranks, const std::vector<std::string>& flags = {}) const {
    return {path_, ranks, {}, flags, recipe_};
  }
  TrainCall call_with(const std::vector<std::string>& settings, int ranks,
                      const std::vector<std::string>& flags = {}) const {
    return {path_, ranks, settings, flags, recipe_};
  }
  Outcome refused(const TrainCall& call, const std::vector<std::string>& expected) const {
    Outcome outcome = try_train(call);
    INFO(outcome.err);
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.seconds < 30);
    for (const std::string& part : expected) {
      CHECK_THAT(outcome.err, Contains(part));
    }
    return outcome;
  }

 private:
  std::string path_;
  std::string recipe_;
};

std::vector<int> steps_of(const std::vector<Json>& events) {
  std::vector<int> steps;
  for (const Json& event : events) {
    steps.push_back(event.at("step").get<int>());
  }
  return steps;
}

const std::vector<std::string> kAuto = {"--resume", "auto"};

}  // namespace

TEST_CASE("A27: ten saves in a row, of both kinds, on two ranks", "[e2e][field]") {
  for (const std::string& kind : kKinds) {
    CAPTURE(kind);
    const TemporaryDirectory directory;
    const SavingRun run(saving_recipe(directory), directory);
    train(run.call_with({"train.max_steps=10", "checkpoint.save_steps=1", "checkpoint.save_total_limit=2",
                         "checkpoint.state_dict_type=" + kind},
                        2));
    CHECK(read_log(run.path()).saves.size() == 10);
    CHECK(checkpoints_of(run.path()) == std::vector<std::string>{"checkpoint-9", "checkpoint-10"});
    succeed({"verify", run.path("checkpoint-9")});
    succeed({"verify", run.path("checkpoint-10")});
  }
}

TEST_CASE("A27: a checkpoint that cannot be written ends all ranks with the cause", "[e2e][field]") {
  for (const std::string& kind : kKinds) {
    CAPTURE(kind);
    const TemporaryDirectory directory;
    const std::string recipe = write_recipe(directory, saving_recipe(directory));
    Command command;  // no file may grow beyond 32 KiB
    command.program = "/bin/bash";
    command.arguments = {"-c",      "trap '' XFSZ; ulimit -f 32; exec \"$@\"",
                         "bash",    STFT_EXECUTABLE,
                         "train",   recipe,
                         "--set",   "checkpoint.state_dict_type=" + kind,
                         "--nproc", "2"};
    const Outcome outcome = run_stft(command, 60);
    INFO(outcome.err);
    CHECK(outcome.has_ended);
    CHECK(outcome.seconds < 30);
    CHECK(outcome.exit_code == 1);
    CHECK_THAT(outcome.err, Contains("checkpoint-2.tmp") && Contains("File too large"));
    CHECK(checkpoints_of(directory.path("run")).empty());
  }
}

TEST_CASE("A30: the best checkpoint outlives rotation, a moved run and a resume", "[e2e][field]") {
  const TemporaryDirectory directory;
  Json recipe = best_recipe(directory);
  recipe["train"]["max_steps"] = 10;
  recipe["train"]["learning_rate"] = 0.05;  // so high that the first checkpoint stays the best
  recipe["train"]["lr_scheduler_type"] = "constant";
  recipe["checkpoint"]["save_total_limit"] = 1;
  const SavingRun run(recipe, directory);
  train(run.call(2));
  REQUIRE(best_of(run.path()) == run.path("checkpoint-2"));
  CHECK(checkpoints_of(run.path()) == std::vector<std::string>{"checkpoint-2", "checkpoint-10"});
  const std::string moved = directory.path("moved");
  fs::rename(run.path(), moved);
  TrainCall again = run.call_with({"train.max_steps=14"}, 2, kAuto);
  again.output_dir = moved;

  SECTION("it is still the best") {
    train(again);
    REQUIRE(best_of(moved) == moved + "/checkpoint-2");
    CHECK(checkpoints_of(moved) == std::vector<std::string>{"checkpoint-2", "checkpoint-14"});
    succeed({"best", moved, "--out", directory.path("best"), "--eval"});
    CHECK(tree_differences(moved + "/final", directory.path("best")).empty());
    CHECK(steps_of(read_log(moved).steps).size() == 14);
  }
  SECTION("it is gone, and dropped at the start") {
    fs::remove_all(moved + "/checkpoint-2");
    const Outcome outcome = train(again);
    CHECK_THAT(outcome.err, Contains("checkpoint-2") && Contains("cannot be used") && Contains("is checkpoint-10"));
    CHECK(best_of(moved) != moved + "/checkpoint-2");
    CHECK(fs::exists(best_of(moved)));
  }
}

TEST_CASE("A31: a truncated shard: auto falls back and says so, by path it is refused", "[e2e][field]") {
  const TemporaryDirectory directory;
  const SavingRun run(saving_recipe(directory), directory);
  train(run.call(2));
  const std::string whole = run.final_bytes();
  const std::string shard = run.path("checkpoint-8/pytorch_model_fsdp_0/__1_0.distcp");
  fs::resize_file(shard, fs::file_size(shard) / 2);
  fs::remove(run.path("checkpoint-6/optimizer_0/__1_0.distcp"));
  run.refused(run.call(2, {"--resume", run.path("checkpoint-8")}), {"--resume", shard});
  run.refused(run.call(2, {"--resume", run.path("checkpoint-6")}), {"--resume", "optimizer_0/__1_0.distcp"});
  const Outcome outcome = train(run.call(2, kAuto));
  CHECK_THAT(outcome.err, Contains("passing over checkpoint-8") && Contains("pytorch_model_fsdp_0/__1_0.distcp") &&
                              Contains("passing over checkpoint-6"));
  CHECK(run.final_bytes() == whole);
  CHECK(steps_of(read_log(run.path()).steps) == std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(read_log(run.path()).starts.back().at("resumed_from") == "checkpoint-4");
  for (const char* name : {"checkpoint-6", "checkpoint-8"}) {
    succeed({"verify", run.path(name)});
  }
}

TEST_CASE("A35: 4 + 4 steps are 8, bit for bit, and what came after the checkpoint is replaced", "[e2e][field]") {
  for (const std::string& kind : kKinds) {
    CAPTURE(kind);
    const TemporaryDirectory directory;
    const SavingRun run(saving_recipe(directory), directory);
    const std::vector<std::string> settings = {"checkpoint.state_dict_type=" + kind};
    train(run.call_with(settings, 2));
    const RunLog log = read_log(run.path());
    copy_tree(run.path(), directory.path("whole"));
    train(run.call_with(settings, 2, {"--resume", run.path("checkpoint-4")}));
    CHECK(tree_differences(directory.path("whole/final"), run.path("final")).empty());
    for (const char* name : {"checkpoint-6", "checkpoint-8"}) {
      const auto different = tree_differences(directory.path("whole/") + name, run.path(name));
      for (const std::string& file : different) {
        CAPTURE(file);  // these hold the seconds that the run took
        CHECK((file == "stft_checkpoint.json" || file == "stft_state.json"));
      }
    }
    const RunLog again = read_log(run.path());
    for (const char* key : {"step", "epoch", "loss", "grad_norm", "learning_rate"}) {
      CHECK(numbers(again.steps, key) == numbers(log.steps, key));
    }
    CHECK(checkpoints_of(run.path()) == checkpoints_of(directory.path("whole")));
  }
}

TEST_CASE("A35: rates depend on steps only, and every change of the rank count keeps the weights", "[e2e][field]") {
  const TemporaryDirectory directory;
  Json recipe = saving_recipe(directory);
  recipe["train"]["optim"] = "sgd";
  recipe["train"]["learning_rate"] = 0.05;
  recipe["train"]["warmup_steps"] = 3;
  const SavingRun run(recipe, directory);
  train(run.call(1));
  const RunLog log = read_log(run.path());
  const std::vector<double> rates = numbers(log.steps, "learning_rate");
  copy_tree(run.path("final"), directory.path("whole"));

  train(run.call(2, {"--overwrite"}));
  CHECK(numbers(read_log(run.path()).steps, "learning_rate") == rates);
  // 2 ranks wrote checkpoint-2; 1 goes on to the end, 2 from its checkpoint-4, 3 from theirs.
  for (const auto& [ranks, from] : std::vector<std::pair<int, std::string>>{
           {1, "checkpoint-2"}, {2, "checkpoint-4"}, {3, "checkpoint-6"}, {2, "checkpoint-8"}}) {
    CAPTURE(ranks, from);
    const std::string before = directory.path("before" + from);
    succeed({"export", run.path(from), "--out", before});
    // What was loaded, before a step changes it.
    const TrainCall loaded{directory.path("loaded"),
                           ranks,
                           {"train.max_steps=" + from.substr(11), "checkpoint.save_strategy=no"},
                           {"--resume", run.path(from)},
                           run.call(1).recipe};
    train(loaded);
    CHECK(tree_differences(before, loaded.output_dir + "/final").empty());
    fs::remove_all(loaded.output_dir);
    train(run.call(ranks, {"--resume", run.path(from)}));
    const RunLog again = read_log(run.path());
    CHECK(numbers(again.steps, "learning_rate") == rates);
    CHECK(relative_difference(numbers(again.steps, "loss"), numbers(log.steps, "loss")) < 1e-6);
    CHECK(weight_difference(run.path("final/model.safetensors"), directory.path("whole/model.safetensors")) < 1e-6);
  }
}

TEST_CASE("a run goes on for more epochs, and a finished one stays as it is", "[e2e][resume]") {
  const TemporaryDirectory directory;
  Json recipe = saving_recipe(directory);
  recipe["train"].erase("max_steps");
  recipe["train"]["num_train_epochs"] = 2;
  recipe["train"]["lr_scheduler_type"] = "constant";
  recipe["checkpoint"]["save_strategy"] = "epoch";
  const SavingRun run(recipe, directory);
  train(run.call_with({"train.num_train_epochs=4"}, 2));
  const std::string four = run.final_bytes();
  train(run.call(2, {"--overwrite"}));
  CHECK(checkpoints_of(run.path()) == std::vector<std::string>{"checkpoint-5", "checkpoint-10"});
  const std::string two = run.final_bytes();
  CHECK(two != four);

  const Outcome outcome = train(run.call(2, kAuto));
  CHECK(run.final_bytes() == two);
  CHECK(read_log(run.path()).steps.size() == 10);
  CHECK(steps_of(read_log(run.path()).starts) == std::vector<int>{0, 10});
  CHECK_THAT(outcome.err, Contains("step 10 of 10"));

  train(run.call_with({"train.num_train_epochs=4"}, 2, kAuto));
  CHECK(run.final_bytes() == four);
  CHECK(steps_of(read_log(run.path()).steps).back() == 20);
  CHECK(checkpoints_of(run.path()).back() == "checkpoint-20");
}

TEST_CASE("--resume: nothing there starts, nothing to go on from is refused", "[e2e][resume]") {
  const TemporaryDirectory directory;
  const SavingRun run(saving_recipe(directory), directory);
  run.refused(run.call(1, {"--resume", "auto", "--overwrite"}), {"--resume", "--overwrite"});
  run.refused(run.call(1, {"--resume", run.path("checkpoint-2")}), {"--resume", run.path("checkpoint-2")});
  CHECK_FALSE(fs::exists(run.path()));
  fs::create_directory(run.path());
  const Outcome outcome = train(run.call(2, kAuto));
  CHECK_THAT(outcome.err, Contains("starting from the beginning"));
  CHECK(read_log(run.path()).steps.size() == 8);
  const std::string whole = run.final_bytes();

  run.refused(run.call(1), {run.path(), "--overwrite", "--resume"});
  run.refused(run.call(2, {"--resume", run.path()}), {run.path(), "give one of its checkpoints"});
  run.refused(run.call(2, {"--resume", run.path("final")}), {run.path("final"), "stft_checkpoint.json"});
  run.refused(run.call_with({"loss.scale=10"}, 2, kAuto), {"loss.scale", "10"});
  CHECK(run.final_bytes() == whole);

  TrainCall elsewhere = run.call(2, {"--resume", run.path("checkpoint-4")});
  elsewhere.output_dir = directory.path("elsewhere");
  copy_tree(run.path(), directory.path("before"));
  train(elsewhere);
  CHECK(tree_differences(directory.path("before"), run.path()).empty());
  CHECK(read_bytes(elsewhere.output_dir + "/final/model.safetensors") == whole);
  CHECK(checkpoints_of(elsewhere.output_dir) == std::vector<std::string>{"checkpoint-6", "checkpoint-8"});
  CHECK(steps_of(read_log(elsewhere.output_dir).steps) == std::vector<int>{5, 6, 7, 8});

  train(run.call_with({"checkpoint.save_strategy=no"}, 1, {"--overwrite"}));
  CHECK(checkpoints_of(run.path()).empty());
  run.refused(run.call(1, kAuto), {run.path(), "without a checkpoint", "--overwrite"});
  CHECK(fs::exists(run.path("final/model.safetensors")));
}

TEST_CASE("save_only_model saves no optimizer, and resuming says that", "[e2e][resume]") {
  for (const std::string& kind : kKinds) {
    CAPTURE(kind);
    const TemporaryDirectory directory;
    const SavingRun run(saving_recipe(directory), directory);
    const std::vector<std::string> settings = {"checkpoint.save_only_model=true", "train.max_steps=4",
                                               "checkpoint.state_dict_type=" + kind};
    train(run.call_with(settings, 2));
    CHECK_FALSE(fs::exists(run.path("checkpoint-4/optimizer_0")));
    succeed({"verify", run.path("checkpoint-4")});
    succeed({"export", run.path("checkpoint-4"), "--out", directory.path("out")});
    CHECK(tree_differences(directory.path("out"), run.path("final")).empty());
    succeed({"state-dict", run.path("checkpoint-4"), "--mode", "sharded", "--ranks", "3", "--out",
             directory.path("parts")});
    succeed({"verify", directory.path("parts")});
    run.refused(run.call_with(settings, 2, {"--resume", run.path("checkpoint-4")}), {"save_only_model", "optimizer"});
    run.refused(run.call_with(settings, 2, kAuto), {"checkpoint-4", "save_only_model", run.path()});
  }
}

TEST_CASE("the save strategies save when they say", "[e2e][resume]") {
  const TemporaryDirectory directory;
  Json recipe = best_recipe(directory);
  recipe["checkpoint"]["save_total_limit"] = nullptr;
  const SavingRun run(recipe, directory);
  const std::string value = "beir_cosine_ndcg@10";

  train(run.call_with({"checkpoint.save_strategy=best"}, 2));
  std::vector<std::string> expected;
  double best = -1;
  for (const Json& eval : read_log(run.path()).evals) {
    const int step = eval.at("step");
    const double found = eval.at("metrics").at(value);
    if (step > 0 && !eval.contains("reloaded") && (found > best || step == 8)) {
      expected.push_back("checkpoint-" + std::to_string(step));
    }
    best = step > 0 ? std::max(best, found) : best;
  }
  CHECK(checkpoints_of(run.path()) == expected);
  CHECK(expected.size() < 4);  // else every evaluation was better than all before it, and nothing was left out

  train(run.call_with({"checkpoint.save_strategy=epoch", "train.eval_strategy=epoch"}, 2, {"--overwrite"}));
  CHECK(checkpoints_of(run.path()) == std::vector<std::string>{"checkpoint-5", "checkpoint-8"});

  train(run.call_with({"checkpoint.save_strategy=no", "checkpoint.load_best_model_at_end=false",
                       "checkpoint.metric_for_best_model=null"},
                      2, {"--overwrite"}));
  CHECK(checkpoints_of(run.path()).empty());
  CHECK(fs::exists(run.path("final/model.safetensors")));
  CHECK_FALSE(fs::exists(run.path("best.json")));
}

TEST_CASE("early stopping ends a run whose metric no longer improves", "[e2e][resume]") {
  const TemporaryDirectory directory;
  const SavingRun run(best_recipe(directory), directory);
  const std::vector<std::string> settings = {"train.early_stopping_patience=2", "train.learning_rate=0",
                                             "train.max_steps=20"};
  const Outcome outcome = train(run.call_with(settings, 2));
  CHECK_THAT(outcome.err, Contains("stopping early"));
  CHECK(steps_of(read_log(run.path()).steps).back() == 6);  // evaluated at 2, 4 and 6
  CHECK(best_of(run.path()) == run.path("checkpoint-2"));
  CHECK(checkpoints_of(run.path()).back() == "checkpoint-6");
  train(run.call_with(settings, 2, kAuto));
  CHECK(steps_of(read_log(run.path()).steps).back() == 6);
}

TEST_CASE("the evaluation loss chooses the best checkpoint, and a smaller one is better", "[e2e][resume]") {
  const TemporaryDirectory directory;
  Json recipe = best_recipe(directory);
  recipe["evaluators"] = Json::array();
  recipe["data"]["eval"] = Json::array({{{"name", "held"},
                                         {"path", source_path("test/golden/data/pairs.jsonl")},
                                         {"columns", {{"anchor", "anchor"}, {"positive", "positive"}}},
                                         {"limit", 30}}});
  recipe["checkpoint"]["metric_for_best_model"] = "eval_loss";
  recipe["train"]["learning_rate"] = 0.02;
  recipe["train"]["max_steps"] = 12;
  const SavingRun run(recipe, directory);
  train(run.call(2));
  double least = std::numeric_limits<double>::infinity();
  int step = 0;
  for (const Json& eval : read_log(run.path()).evals) {
    const double loss = eval.at("metrics").at("eval_loss");
    if (eval.at("step") > 0 && loss < least) {
      least = loss;
      step = eval.at("step");
    }
  }
  CHECK(best_of(run.path()) == run.path("checkpoint-" + std::to_string(step)));
  const Json best = Json::parse(succeed({"best", run.path(), "--eval", "--out", directory.path("best")}));
  CHECK(best.at("metric") == "eval_loss");
  CHECK(best.at("evaluated").get<double>() == Approx(least).epsilon(1e-6));
  CHECK(tree_differences(directory.path("best"), run.path("final")).empty());
}

}  // namespace stft::test
