// A run that was interrupted and resumed is the run that was not.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/error.h"
#include "checkpoint/checkpoint_store.h"
#include "io/temporary_directory.h"
#include "train/checkpoint_run.h"

using namespace stft;
using namespace stft::test;
using checkpoint::StateDictType;

namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kWeightsAndMoments = {"pytorch_model_fsdp_0/", "model.safetensors", "optimizer_0/"};

eval::EvaluatorConfig beir_config() {
  eval::EvaluatorConfig config;
  config.name = "beir";
  config.queries.path = golden_path("data/beir/queries.jsonl");
  config.corpus.path = golden_path("data/beir/corpus.jsonl");
  config.qrels_path = golden_path("data/beir/qrels/test.tsv");
  return config;
}

constexpr const char* kNdcg = "beir_cosine_ndcg@10";

void evaluate_every(recipe::Recipe& recipe, int64_t steps) {
  recipe.evaluators = {beir_config()};
  recipe.train.eval_strategy = recipe::EvalStrategy::kSteps;
  recipe.train.eval_steps = static_cast<double>(steps);
  recipe.train.eval_on_start = true;
}

// A run in parts ended as the whole one did: weights and moments of the last checkpoint, final/, the log.
void check_same_end(const std::string& parts, const std::string& whole) {
  for (const char* name : {"/checkpoint-12", "/final"}) {
    INFO(name);
    REQUIRE(fs::exists(parts + name));
  }
  CHECK(checksums(parts + "/checkpoint-12", kWeightsAndMoments) ==
        checksums(whole + "/checkpoint-12", kWeightsAndMoments));
  CHECK(contents(parts + "/final") == contents(whole + "/final"));
  CHECK(timeless_log(parts) == timeless_log(whole));
}

double largest_difference(const std::string& a, const std::string& b) {
  const auto file = io::SafetensorsFile::open(a);
  double largest = 0;
  for (const auto& info : file.tensors()) {
    if (info.dtype == io::Dtype::kF32) {
      largest = std::max(largest, max_difference(read_tensor(a, info.name), read_tensor(b, info.name)));
    }
  }
  return largest;
}

}  // namespace

TEST_CASE("6 + 6 steps are 12: weights, moments, log and best, bit for bit, for both kinds and strategies") {
  const TemporaryDirectory directory;
  struct Way {
    int64_t ranks;
    shard::Strategy strategy;
  };
  for (const auto type : {StateDictType::kSharded, StateDictType::kFull}) {
    for (const auto& [ranks, strategy] : {Way{1, shard::Strategy::kFullShard}, Way{2, shard::Strategy::kFullShard},
                                          Way{2, shard::Strategy::kNoShard}, Way{3, shard::Strategy::kFullShard}}) {
      INFO("sharded " << (type == StateDictType::kSharded) << " ranks " << ranks << " full_shard "
                      << (strategy == shard::Strategy::kFullShard));
      const std::string whole = directory.path("whole");
      const std::string parts = directory.path("parts");
      fs::remove_all(whole);
      fs::remove_all(parts);
      recipe::Recipe recipe = checkpoint_recipe(whole);
      evaluate_every(recipe, 3);
      save_every(recipe, 6, type);
      recipe.checkpoint.metric_for_best_model = kNdcg;
      REQUIRE(train_run(recipe, {ranks, strategy}) == train::Outcome::kDone);

      recipe.run.output_dir = parts;
      RunOptions options{ranks, strategy};
      // As if killed after step 12's log lines and before its checkpoint had its name.
      REQUIRE(train_run(recipe, options) == train::Outcome::kDone);
      fs::remove_all(parts + "/checkpoint-12");
      fs::remove_all(parts + "/final");
      options.resume = auto_resume();
      REQUIRE(train_run(recipe, options) == train::Outcome::kDone);

      check_same_end(parts, whole);
      CHECK(io::read_text_file(parts + "/best.json") == io::read_text_file(whole + "/best.json"));
      CHECK(log_events(parts, "start").back()["resumed_from"] == "checkpoint-6");
      CHECK(io::read_text_file(parts + "/eval/Information-Retrieval_evaluation_beir_results.csv") ==
            io::read_text_file(whole + "/eval/Information-Retrieval_evaluation_beir_results.csv"));
    }
  }
}

TEST_CASE("6 + 6 steps are 12 with 8-bit moments and rates of their own, at 1 to 4 ranks") {
  const TemporaryDirectory directory;
  struct Way {
    int64_t ranks;
    shard::Strategy strategy;
    bool is_offloaded = false;
  };
  for (const auto& [ranks, strategy, is_offloaded] :
       {Way{1, shard::Strategy::kFullShard}, Way{2, shard::Strategy::kNoShard}, Way{3, shard::Strategy::kFullShard},
        Way{2, shard::Strategy::kFullShard, true}, Way{4, shard::Strategy::kHybridShard}}) {
    INFO(ranks << " ranks, strategy " << static_cast<int>(strategy) << ", offloaded " << is_offloaded);
    const std::string whole = directory.path("whole");
    const std::string parts = directory.path("parts");
    fs::remove_all(whole);
    fs::remove_all(parts);
    recipe::Recipe recipe = eight_bit_recipe(whole);
    recipe.optim.learning_rate_mapping = {{"attention", 2e-3}, {"query", 5e-4}};
    recipe.sharding.cpu_offload = is_offloaded;
    recipe.sharding.hybrid_shard_size = 2;
    save_every(recipe, 6, StateDictType::kSharded);
    REQUIRE(train_run(recipe, {ranks, strategy}) == train::Outcome::kDone);
    recipe.run.output_dir = parts;
    RunOptions options{ranks, strategy};
    options.stop_at_look = 7;
    REQUIRE(train_run(recipe, options) == train::Outcome::kStopped);
    RunOptions again{ranks, strategy};
    again.resume = auto_resume();
    REQUIRE(train_run(recipe, again) == train::Outcome::kDone);
    check_same_end(parts, whole);
  }
}

TEST_CASE("another optimizer does not go on from a checkpoint") {
  const TemporaryDirectory directory;
  recipe::Recipe recipe = eight_bit_recipe(directory.path("run"));
  recipe.train.max_steps = 2;
  save_every(recipe, 2, StateDictType::kSharded);
  REQUIRE(train_run(recipe, {1}) == train::Outcome::kDone);
  recipe.optim.optim = optim::OptimizerType::kAdamW;
  recipe.train.max_steps = 4;
  RunOptions again{1};
  again.resume = auto_resume();
  const std::string message = message_of<UserError>([&] { train_run(recipe, again); });
  CHECK(message.find("train.optim") != std::string::npos);
}

TEST_CASE("a stop in any epoch is saved, and the resumed run ends as the whole one") {
  const TemporaryDirectory directory;
  const std::string whole = directory.path("whole");
  recipe::Recipe recipe = checkpoint_recipe(whole);
  save_every(recipe, 12, StateDictType::kSharded);
  REQUIRE(train_run(recipe, {2}) == train::Outcome::kDone);
  for (const int64_t stop_after : {0, 1, 4, 6, 11}) {  // start-up; the end of an epoch; the middle of the 2nd and 3rd
    INFO("stopped after step " << stop_after);
    const std::string parts = directory.path("parts" + std::to_string(stop_after));
    recipe.run.output_dir = parts;
    RunOptions options{2};
    options.stop_at_look = 1 + stop_after;
    options.stopping_rank = stop_after % 2;  // one rank alone is asked
    REQUIRE(train_run(recipe, options) == train::Outcome::kStopped);
    CHECK(checkpoint::checkpoint_steps(parts) == std::vector<int64_t>{stop_after});
    CHECK_FALSE(fs::exists(parts + "/final"));
    RunOptions again{2};
    again.resume = auto_resume();
    REQUIRE(train_run(recipe, again) == train::Outcome::kDone);
    check_same_end(parts, whole);
  }
}

TEST_CASE("a stop during an evaluation leaves it due; the resumed run does it") {
  const TemporaryDirectory directory;
  const std::string whole = directory.path("whole");
  recipe::Recipe recipe = checkpoint_recipe(whole);
  evaluate_every(recipe, 4);
  recipe.train.max_steps = 4;
  save_every(recipe, 4, StateDictType::kSharded);
  recipe.checkpoint.metric_for_best_model = kNdcg;
  recipe.checkpoint.load_best_model_at_end = true;
  REQUIRE(train_run(recipe, {2}) == train::Outcome::kDone);
  for (const int64_t look : {3, 8}) {  // in the evaluation before training; in the one after step 4, or later
    INFO("look " << look);
    const std::string parts = directory.path("parts" + std::to_string(look));
    recipe.run.output_dir = parts;
    RunOptions options{2};
    options.stop_at_look = look;
    REQUIRE(train_run(recipe, options) == train::Outcome::kStopped);
    RunOptions again{2};
    again.resume = auto_resume();
    REQUIRE(train_run(recipe, again) == train::Outcome::kDone);
    CHECK(timeless_log(parts) == timeless_log(whole));
    CHECK(contents(parts + "/final") == contents(whole + "/final"));
    CHECK(io::read_text_file(parts + "/best.json") == io::read_text_file(whole + "/best.json"));
  }
}

TEST_CASE("another number of ranks goes on with the same numbers") {
  const TemporaryDirectory directory;
  recipe::Recipe recipe = checkpoint_recipe(directory.path("whole"));
  recipe.optim.optim = optim::OptimizerType::kSgd;
  recipe.optim.learning_rate = 0.02;
  save_every(recipe, 6, StateDictType::kSharded);
  REQUIRE(train_run(recipe, {1}) == train::Outcome::kDone);
  struct Way {
    int64_t from, to;
    shard::Strategy then;
  };
  for (const Way way : {Way{2, 1, shard::Strategy::kFullShard}, Way{1, 2, shard::Strategy::kFullShard},
                        Way{2, 3, shard::Strategy::kFullShard}, Way{3, 2, shard::Strategy::kNoShard}}) {
    INFO(way.from << " -> " << way.to);
    const std::string parts = directory.path("from" + std::to_string(way.from) + "to" + std::to_string(way.to));
    recipe.run.output_dir = parts;
    RunOptions options{way.from};
    options.stop_at_look = 7;
    REQUIRE(train_run(recipe, options) == train::Outcome::kStopped);
    RunOptions again{way.to, way.then};
    again.resume = auto_resume();
    REQUIRE(train_run(recipe, again) == train::Outcome::kDone);
    CHECK(largest_difference(parts + "/final/model.safetensors", directory.path("whole/final/model.safetensors")) <
          1e-6);
    const auto expected = log_events(directory.path("whole"), "step");
    const auto found = log_events(parts, "step");
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      CHECK(found[i]["loss"].get<double>() == Approx(expected[i]["loss"].get<double>()).epsilon(1e-6));
      CHECK(found[i]["learning_rate"] == expected[i]["learning_rate"]);
    }
  }
}

TEST_CASE("the best checkpoint in the middle of a run is what final/ holds, and rotation keeps it") {
  const TemporaryDirectory directory;
  const std::string output_dir = directory.path("run");
  recipe::Recipe recipe = checkpoint_recipe(output_dir);
  evaluate_every(recipe, 2);
  save_every(recipe, 2, StateDictType::kSharded);
  recipe.optim.lr_scheduler_type = optim::ScheduleType::kConstant;
  recipe.optim.learning_rate = 0.02;  // too high: what was learned early is lost
  recipe.checkpoint.metric_for_best_model = "eval_" + std::string(kNdcg);
  recipe.checkpoint.load_best_model_at_end = true;
  recipe.checkpoint.save_total_limit = 1;
  REQUIRE(train_run(recipe, {2}) == train::Outcome::kDone);

  const auto evals = log_events(output_dir, "eval");
  double best = -1;
  int64_t best_step = 0;
  for (const auto& line : evals) {
    const int64_t step = line["step"];
    const double value = line["metrics"][kNdcg];
    if (step > 0 && !line.contains("reloaded") && value > best) {
      best = value;
      best_step = step;
    }
  }
  REQUIRE(best_step > 0);
  REQUIRE(best_step < 12);  // else this test shows nothing
  CHECK(evals.back()["reloaded"] == checkpoint::checkpoint_name(best_step));
  CHECK(evals.back()["metrics"][kNdcg].get<double>() == Approx(best).margin(1e-6));
  CHECK(checkpoint::checkpoint_steps(output_dir) == std::vector<int64_t>{best_step, 12});
  const auto found = checkpoint::find_best(output_dir);
  CHECK(fs::path(found.path).filename() == checkpoint::checkpoint_name(best_step));
  CHECK_FALSE(found.is_fallback);

  SECTION("a run whose directory moved goes on and still finds it") {
    const std::string moved = directory.path("moved");
    fs::rename(output_dir, moved);
    recipe.run.output_dir = moved;
    recipe.train.max_steps = 14;
    RunOptions again{2};
    again.resume = auto_resume();
    REQUIRE(train_run(recipe, again) == train::Outcome::kDone);
    CHECK(checkpoint::read_best(moved).has_value());
  }
  SECTION("a best checkpoint that is gone is forgotten at the start, and the run goes on") {
    fs::remove_all(output_dir + "/" + checkpoint::checkpoint_name(best_step));
    recipe.train.max_steps = 14;
    RunOptions again{2};
    again.resume = auto_resume();
    REQUIRE(train_run(recipe, again) == train::Outcome::kDone);
    CHECK(checkpoint::read_best(output_dir)->checkpoint == "checkpoint-14");
  }
  SECTION("a best checkpoint whose numbers do not come back is told, and no model is written") {
    // The same files under another name: those of the last step.
    const std::string best_dir = output_dir + "/" + checkpoint::checkpoint_name(best_step);
    auto manifest = *checkpoint::read_manifest(best_dir);
    recipe.train.max_steps = 12;
    fs::remove_all(output_dir + "/final");
    checkpoint::write_best(output_dir, {checkpoint::checkpoint_name(best_step), kNdcg, best});
    for (const char* folder : {"pytorch_model_fsdp_0"}) {
      fs::remove_all(best_dir + "/" + folder);
      fs::copy(output_dir + "/checkpoint-12/" + folder, best_dir + "/" + folder, fs::copy_options::recursive);
    }
    const auto other = *checkpoint::read_manifest(output_dir + "/checkpoint-12");
    for (auto& file : manifest.files) {
      for (const auto& from : other.files) {
        if (file.path == from.path && file.path.starts_with("pytorch_model_fsdp_0")) {
          file = from;
        }
      }
    }
    checkpoint::write_manifest(manifest, best_dir);
    RunOptions again{2};
    again.resume = auto_resume();
    const std::string message = message_of<SystemError>([&] { train_run(recipe, again); });
    CHECK(message.find("is not what was measured") != std::string::npos);
    CHECK_FALSE(fs::exists(output_dir + "/final"));
  }
}

TEST_CASE("patience: the run stops early, is saved there, and stays stopped") {
  const TemporaryDirectory directory;
  const std::string output_dir = directory.path("run");
  recipe::Recipe recipe = checkpoint_recipe(output_dir);
  evaluate_every(recipe, 1);
  save_every(recipe, 1, StateDictType::kFull);
  recipe.optim.learning_rate = 0;  // nothing ever improves
  recipe.checkpoint.metric_for_best_model = kNdcg;
  recipe.checkpoint.load_best_model_at_end = true;
  recipe.train.early_stopping_patience = 3;
  REQUIRE(train_run(recipe, {2}) == train::Outcome::kDone);
  CHECK(checkpoint::checkpoint_steps(output_dir).back() == 4);  // the first is the best, then 3 without a better one
  CHECK(checkpoint::read_best(output_dir)->checkpoint == "checkpoint-1");
  RunOptions again{2};
  again.resume = auto_resume();
  REQUIRE(train_run(recipe, again) == train::Outcome::kDone);
  CHECK(checkpoint::checkpoint_steps(output_dir).back() == 4);
}

TEST_CASE("resuming refuses another model, loss, data or order, and names the keys") {
  const TemporaryDirectory directory;
  const std::string output_dir = directory.path("run");
  recipe::Recipe recipe = checkpoint_recipe(output_dir);
  recipe.train.max_steps = 2;
  save_every(recipe, 2, StateDictType::kSharded);
  REQUIRE(train_run(recipe, {1}) == train::Outcome::kDone);
  RunOptions again{1};
  again.resume = auto_resume();
  const auto refusal = [&](const std::function<void(recipe::Recipe&)>& change) {
    recipe::Recipe changed = recipe;
    change(changed);
    return message_of<UserError>([&] { train_run(changed, again); });
  };
  CHECK(refusal([](auto& r) { r.loss.scale = 10; }).find("loss.scale: 10") != std::string::npos);
  CHECK(refusal([](auto& r) { r.run.seed = 7; }).find("run.seed: 7 now, 42") != std::string::npos);
  CHECK(refusal([](auto& r) { r.data.train.front().limit = 20; }).find("data.train.0.limit") != std::string::npos);
  CHECK(refusal([](auto& r) { r.model.dropout = 0.0; }).find("model.dropout") != std::string::npos);
  CHECK(refusal([](auto& r) { r.optim.optim = optim::OptimizerType::kSgd; }).find("train.optim") != std::string::npos);
  // These may change.
  recipe.train.max_steps = 4;
  recipe.train.global_batch_size = 6;
  recipe.train.logging_steps = 1;
  CHECK(train_run(recipe, again) == train::Outcome::kDone);
  CHECK(log_events(output_dir, "step").back()["step"] == 4);
}

TEST_CASE("a checkpoint whose state and manifest tell different steps is refused, not taken from the start") {
  const TemporaryDirectory directory;
  const std::string output_dir = directory.path("run");
  recipe::Recipe recipe = checkpoint_recipe(output_dir);
  recipe.train.max_steps = 2;
  save_every(recipe, 2, StateDictType::kSharded);
  for (const int64_t ranks : {1, 2, 3}) {
    INFO("ranks " << ranks);
    fs::remove_all(output_dir);
    REQUIRE(train_run(recipe, {ranks}) == train::Outcome::kDone);
    // Whole files and true check-sums: only the two numbers disagree.
    const std::string path = output_dir + "/checkpoint-2";
    auto manifest = *checkpoint::read_manifest(path);
    manifest.step = 1;
    checkpoint::write_manifest(manifest, path);
    RunOptions again{ranks};
    again.resume = auto_resume();
    const std::string message = message_of<UserError>([&] { train_run(recipe, again); });
    CHECK(message.find("position.step is 2, the manifest's step 1") != std::string::npos);
    CHECK(log_events(output_dir, "step").back()["step"] == 2);
  }
}

TEST_CASE("automatic resuming passes over what is unfinished or damaged; a given one is refused with its files") {
  const TemporaryDirectory directory;
  const std::string output_dir = directory.path("run");
  recipe::Recipe recipe = checkpoint_recipe(output_dir);
  recipe.train.max_steps = 6;
  save_every(recipe, 2, StateDictType::kSharded);
  REQUIRE(train_run(recipe, {2}) == train::Outcome::kDone);
  fs::remove(output_dir + "/checkpoint-6/stft_checkpoint.json");
  const std::string shard = output_dir + "/checkpoint-4/optimizer_0/__1_0.distcp";
  fs::resize_file(shard, fs::file_size(shard) - 1);
  const auto newest = checkpoint::newest_checkpoint(output_dir);
  CHECK(fs::path(newest.path.value()).filename() == "checkpoint-2");
  REQUIRE(newest.skipped.size() == 2);
  CHECK(newest.skipped[0].find("checkpoint-6: ") == 0);
  CHECK(newest.skipped[1].find("__1_0.distcp") != std::string::npos);
  RunOptions given{2};
  given.resume = train::ResumeRequest{false, output_dir + "/checkpoint-4"};
  const std::string message = message_of<UserError>([&] { train_run(recipe, given); });
  CHECK(message.find("__1_0.distcp' has ") != std::string::npos);
  RunOptions again{2};
  again.resume = auto_resume();
  REQUIRE(train_run(recipe, again) == train::Outcome::kDone);
  CHECK(checkpoint::checkpoint_faults(output_dir + "/checkpoint-6", checkpoint::FileCheck::kChecksums).empty());
}
