#include "train/run_state.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "io/file.h"
#include "io/json.h"
#include "io/temporary_directory.h"
#include "train/best_tracker.h"
#include "train/run_log.h"
#include "train/saving.h"

using namespace stft;
using namespace stft::train;

TEST_CASE("a run's state reads back with every bit") {
  RunState state;
  state.position = {7, 2, 12, 9};
  state.epoch = 2.3;
  state.since_log = {0.1 + 0.2, 2, 24, 999, 1.5};
  state.train_seconds = 1.0 / 3;
  state.best_progress = {0.1 + 0.7, 2, "dev", false};
  state.data_fingerprint = "xxh3:1";
  state.stop_checkpoint = "checkpoint-7";
  state.best = checkpoint::BestCheckpoint{"checkpoint-4", "dev_cosine_ndcg@10", 0.1 + 0.7};
  state.is_evaluation_pending = true;
  state.first_values = {{"b", 0.25}, {"a", std::nan("")}};
  state.history.push_back({{"loss", 1.0 / 3}, {"step", 5}});
  const RunState again = run_state_from_json(to_json(state), "test");
  CHECK(to_json(again) == to_json(state));
  CHECK(again.position == state.position);
  CHECK(again.since_log.loss_sum == state.since_log.loss_sum);
  CHECK(again.best_progress == state.best_progress);
  CHECK(again.first_values[0].first == "b");
  CHECK(std::isnan(again.first_values[1].second));
}

TEST_CASE("a damaged state names the file and the key") {
  const RunState untouched;
  const std::string text = to_json(untouched);
  for (const char* key :
       {"position", "since_log", "evaluated_step", "is_evaluation_pending", "log_history", "first_values"}) {
    io::Json json = io::parse_json(text, "x");
    json.erase(key);
    const std::string message =
        test::message_of<UserError>([&] { run_state_from_json(json.dump(), "dir/stft_state.json"); });
    CHECK(message.find("dir/stft_state.json") != std::string::npos);
    CHECK(message.find(key) != std::string::npos);
  }
  CHECK_THROWS_AS(run_state_from_json("{", "x"), UserError);
}

TEST_CASE("the best value and patience go as transformers' early stopping does") {
  const BestRule rule{"m", true, 2, 0.1};
  BestProgress progress;
  const auto see = [&](double value) {
    const auto verdict = observe(rule, progress, value);
    progress = verdict.progress;
    return verdict;
  };
  CHECK(see(0.5).is_new_best);
  CHECK(see(0.55).is_new_best);  // better, but by no more than the threshold
  CHECK(progress.evaluations_without_improvement == 1);
  CHECK(see(0.7).is_new_best);
  CHECK(progress.evaluations_without_improvement == 0);
  CHECK_FALSE(see(std::nan("")).is_new_best);
  CHECK_FALSE(see(0.7).is_new_best);
  CHECK(progress.evaluations_without_improvement == 2);
  CHECK(observe(rule, progress, 0.0).is_exhausted);
  CHECK(is_better({"loss", false, {}, 0}, 0.1, 0.2));
  CHECK(is_better(rule, 0.1, std::nan("")));
  CHECK_FALSE(is_better(rule, std::nan(""), 0.1));
}

TEST_CASE("a metric is found with and without eval_") {
  const eval::NamedValues metrics = {{"dev_cosine_ndcg@10", 0.5}, {"eval_loss", 1.5}};
  CHECK(find_metric(metrics, "eval_dev_cosine_ndcg@10")->value == 0.5);
  CHECK(find_metric(metrics, "dev_cosine_ndcg@10")->metric == "dev_cosine_ndcg@10");
  CHECK(find_metric(metrics, "loss")->metric == "eval_loss");
  CHECK_FALSE(find_metric(metrics, "ndcg").has_value());
}

TEST_CASE("cutting a log keeps what came up to a step, and no half line") {
  const test::TemporaryDirectory directory;
  directory.write("log.jsonl",
                  "{\"event\": \"start\", \"step\": 0}\n{\"event\": \"step\", \"step\": 2}\n"
                  "{\"event\": \"eval\", \"step\": 2, \"reloaded\": \"checkpoint-1\"}\n"
                  "{\"event\": \"step\", \"step\": 3}\n{\"event\": \"end\", \"step\": 2}\n{\"event\": \"st");
  std::filesystem::create_directories(directory.path("eval"));
  directory.write("eval/a.csv", "epoch,steps,x\n0,0,1\n0.5,2,1\n1,4,1\n1.5,");
  cut_log(directory.path("."), {2, true});
  CHECK(io::read_text_file(directory.path("log.jsonl")) ==
        "{\"event\": \"start\", \"step\": 0}\n{\"event\": \"step\", \"step\": 2}\n");
  CHECK(io::read_text_file(directory.path("eval/a.csv")) == "epoch,steps,x\n0,0,1\n0.5,2,1\n");
  cut_log(directory.path("."), {2, false});
  CHECK(io::read_text_file(directory.path("eval/a.csv")) == "epoch,steps,x\n0,0,1\n");
}

TEST_CASE("trainer_state.json has exactly the keys that transformers' TrainerState takes") {
  RunState state;
  state.best = checkpoint::BestCheckpoint{"checkpoint-4", "dev", 0.5};
  const recipe::Recipe recipe;
  const io::Json json = io::parse_json(trainer_state_json(state, {recipe, 10, 1, 2, 4}), "x");
  const std::vector<std::string> expected = {"best_global_step",
                                             "best_metric",
                                             "best_model_checkpoint",
                                             "epoch",
                                             "eval_steps",
                                             "global_step",
                                             "is_hyper_param_search",
                                             "is_local_process_zero",
                                             "is_world_process_zero",
                                             "log_history",
                                             "logging_steps",
                                             "max_steps",
                                             "num_input_tokens_seen",
                                             "num_train_epochs",
                                             "save_steps",
                                             "stateful_callbacks",
                                             "total_flos",
                                             "train_batch_size",
                                             "trial_name",
                                             "trial_params"};
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) {
    keys.push_back(key);
  }
  CHECK(keys == expected);
  CHECK(json["best_global_step"] == 4);
  CHECK(with_eval_prefix("eval_loss") == "eval_loss");
  CHECK(with_eval_prefix("dev") == "eval_dev");
}
