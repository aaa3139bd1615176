// kill -9 of the whole job at random moments of saving: what has the name of a checkpoint is one, and the run goes on.
#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <random>
#include <string>

#include "e2e/interrupted_run.h"

namespace stft::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

// One long run that is killed and resumed many times.
class KilledRun {
 public:
  explicit KilledRun(unsigned seed) : random_(seed) {
    Json recipe = saving_recipe(directory_, "SHARDED_STATE_DICT");
    recipe["checkpoint"]["save_total_limit"] = 2;
    recipe_path_ = write_recipe(directory_, recipe);
    recipe_ = recipe;
  }

  std::string run() const { return directory_.path("run"); }
  int kills_in_saving() const { return kills_in_saving_; }

  // Goes on, and is killed after up to two checkpoints and a part of the time that one takes.
  void live_and_die(int life) {
    const std::string type = life % 2 == 0 ? "SHARDED_STATE_DICT" : "FULL_STATE_DICT";
    const auto newest = newest_checkpoint(run());
    Process process({train_arguments(recipe_path_, {"--resume", "auto", "--set", "checkpoint.state_dict_type=" + type}),
                     {},
                     false});
    const std::string start = newest ? "going on from " + checkpoint(*newest) + ":" : "starting from the beginning";
    const bool has_started = wait_for_text(process, start);
    INFO(process.err());
    REQUIRE(has_started);
    const std::vector<RankProcess> ranks = ranks_of(process.pid());
    REQUIRE(ranks.size() == 2);

    double last = now();
    const auto wanted = std::uniform_int_distribution<size_t>(0, 2)(random_);
    for (size_t saved = 1; saved <= wanted; ++saved) {
      REQUIRE(
          process.wait_until([&](const Process& p) { return count_of(p.err(), "saved checkpoint-") >= saved; }, 120));
      seconds_per_save_ = now() - last;
      last = now();
    }
    // Half of the lives end at a random moment of a step and its checkpoint, the others inside the saving.
    if (life % 4 >= 2) {
      wait_for_saving();
    }
    const double part = life % 4 >= 2 ? 0.2 : 1;
    const double fraction = std::uniform_real_distribution<double>(0, part)(random_);
    process.wait_until([](const Process&) { return false; }, fraction * seconds_per_save_);
    process.handle().send(SIGKILL);
    for (const RankProcess& rank : ranks) {
      rank.handle.send(SIGKILL);
      REQUIRE(rank.handle.is_gone_within(60));
    }
    examine(process.wait(60), newest);
  }

  // Goes on to its end, which is that of a run nobody killed.
  void live_on() {
    const int64_t steps = newest_checkpoint(run()).value_or(0) + 2;
    const Outcome outcome = run_stft(
        train_arguments(recipe_path_, {"--resume", "auto", "--set", "train.max_steps=" + std::to_string(steps)}), 300);
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    CHECK(leftovers(run()).empty());
    CHECK(checkpoint_steps(run()) == std::vector<int64_t>{steps - 1, steps});
    const std::string reference = uninterrupted_run(directory_, recipe_, steps);
    CHECK(different_files(run() + "/final", reference + "/final").empty());
    const std::vector<Json> log = read_log(run()).steps;
    const std::vector<Json> expected = read_log(reference).steps;
    REQUIRE(log.size() == static_cast<size_t>(steps));
    for (const char* key : {"step", "loss", "grad_norm"}) {
      CHECK(numbers(log, key) == numbers(expected, key));
    }
  }

 private:
  std::string checkpoint(int64_t step) const { return run() + "/checkpoint-" + std::to_string(step); }

  // Looks without a pause until a checkpoint is being written.
  void wait_for_saving() const {
    const double give_up = now() + 60;
    const auto is_saving = [&] {
      const auto names = leftovers(run());
      return std::any_of(names.begin(), names.end(), [](const std::string& name) {
        return name.starts_with("checkpoint-") && name.ends_with(".tmp");
      });
    };
    while (!is_saving() && now() < give_up) {
    }
  }

  void examine(const Outcome& outcome, const std::optional<int64_t>& before) {
    INFO(outcome.err);
    REQUIRE(outcome.signal_number == SIGKILL);
    CHECK(damaged_checkpoints(run()).empty());
    const auto steps = checkpoint_steps(run());
    // What was saved once is never lost.
    const auto newest = static_cast<int64_t>(count_of(outcome.err, "saved checkpoint-")) + before.value_or(0);
    CHECK((newest == 0 || (!steps.empty() && steps.back() >= newest)));
    for (const std::string& name : leftovers(run())) {
      kills_in_saving_ += name.starts_with("checkpoint-") && name.ends_with(".tmp") ? 1 : 0;
    }
    if (!steps.empty()) {  // the newest one is loaded by the next life
      const Outcome exported =
          run_stft({"export", checkpoint(steps.front()), "--out", directory_.path("exported"), "--overwrite"});
      INFO(exported.err);
      CHECK(exported.exit_code == 0);
      CHECK(fs::exists(directory_.path("exported/model.safetensors")));
    }
  }

  TemporaryDirectory directory_;
  Json recipe_;
  std::string recipe_path_;
  std::mt19937 random_;
  double seconds_per_save_ = 0.2;
  int kills_in_saving_ = 0;
};

void check_survives(unsigned seed, int kills) {
  KilledRun run(seed);
  for (int life = 0; life < kills; ++life) {
    INFO("seed " << seed << ", life " << life);
    run.live_and_die(life);
  }
  run.live_on();
  INFO("kills " << kills);
  WARN("kills between the start of a checkpoint and its name: " << run.kills_in_saving() << " of " << kills);
  CHECK(run.kills_in_saving() * 4 >= kills);
}

}  // namespace

TEST_CASE("a job that is killed again and again while it saves loses nothing", "[e2e][kill]") {
  check_survives(1, 8);
}

TEST_CASE("a job that is killed sixty times while it saves loses nothing", "[.][slow][kill]") {
  check_survives(2, 60);
}

}  // namespace stft::test
