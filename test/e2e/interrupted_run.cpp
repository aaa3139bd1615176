#include "e2e/interrupted_run.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <set>
#include <stdexcept>

namespace stft::test {
namespace {

namespace fs = std::filesystem;

std::set<std::string> files_under(const std::string& directory) {
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) {
      files.insert(fs::relative(entry.path(), directory).string());
    }
  }
  return files;
}

// Looks again and again, and takes the output meanwhile.
bool wait_for(Process& process, const std::function<bool()>& condition, double seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (process.handle().is_gone_within(0) || std::chrono::steady_clock::now() > deadline) {
      return condition();
    }
    process.wait_until([](const Process&) { return false; }, 0.0001);
  }
  return true;
}

}  // namespace

Json saving_recipe(const TemporaryDirectory& directory, const std::string& type) {
  Json recipe = small_recipe(directory);
  recipe["train"]["optim"] = "adamw";
  recipe["train"]["learning_rate"] = 1e-3;
  recipe["train"]["max_steps"] = 100000;
  recipe["checkpoint"] = {{"state_dict_type", type}, {"save_steps", 1}};
  return recipe;
}

std::vector<std::string> train_arguments(const std::string& recipe_path, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"train", recipe_path, "--nproc", "2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

bool wait_for_text(Process& process, const std::string& text, double seconds) {
  return process.wait_until([&](const Process& p) { return p.err().find(text) != std::string::npos; }, seconds);
}

bool wait_for_path(Process& process, const std::string& path, double seconds) {
  return wait_for(
      process, [&] { return fs::exists(path); }, seconds);
}

std::vector<RankProcess> wait_for_ranks(Process& launcher, size_t count, double seconds) {
  std::vector<RankProcess> ranks;
  const auto all_exist = [&] {
    std::vector<RankProcess> found = ranks_of(launcher.pid());
    ranks.swap(found);
    return ranks.size() == count;
  };
  wait_for(launcher, all_exist, seconds);
  return ranks;
}

const ProcessHandle& handle_of(const std::vector<RankProcess>& ranks, int rank) {
  for (const RankProcess& process : ranks) {
    if (process.rank == rank) {
      return process.handle;
    }
  }
  throw std::out_of_range("no such rank");
}

std::vector<int64_t> checkpoint_steps(const std::string& run_directory) {
  const std::string prefix = "checkpoint-";
  std::vector<int64_t> steps;
  std::error_code error;
  for (auto it = fs::directory_iterator(run_directory, error); !error && it != fs::end(it); it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(prefix) && name.find_first_not_of("0123456789", prefix.size()) == std::string::npos) {
      steps.push_back(std::stoll(name.substr(prefix.size())));
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<int64_t> newest_checkpoint(const std::string& run_directory) {
  const auto steps = checkpoint_steps(run_directory);
  return steps.empty() ? std::nullopt : std::optional(steps.back());
}

std::vector<std::string> leftovers(const std::string& run_directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto it = fs::directory_iterator(run_directory, error); !error && it != fs::end(it); it.increment(error)) {
    const std::string name = it->path().filename().string();
    for (const char* ending : {".tmp", ".old", ".removed"}) {
      if (name.ends_with(ending)) {
        names.push_back(name);
      }
    }
  }
  return names;
}

std::string damaged_checkpoints(const std::string& run_directory) {
  std::string faults;
  for (const int64_t step : checkpoint_steps(run_directory)) {
    const std::string path = run_directory + "/checkpoint-" + std::to_string(step);
    const Outcome outcome = run_stft({"verify", path}, 120);
    if (outcome.exit_code != 0) {
      faults += path + ": " + outcome.err;
    }
  }
  return faults;
}

std::vector<std::string> different_files(const std::string& a, const std::string& b) {
  std::set<std::string> files = files_under(a);
  files.merge(files_under(b));
  std::vector<std::string> different;
  for (const std::string& file : files) {
    const std::string in_a = a + "/" + file;
    const std::string in_b = b + "/" + file;
    if (!fs::exists(in_a) || !fs::exists(in_b) || read_bytes(in_a) != read_bytes(in_b)) {
      different.push_back(file);
    }
  }
  return different;
}

std::string uninterrupted_run(const TemporaryDirectory& directory, const Json& recipe, int64_t steps) {
  const std::string run = directory.path("reference-" + std::to_string(steps));
  if (!fs::exists(run)) {
    Json whole = recipe;
    whole["run"]["output_dir"] = run;
    whole["train"]["max_steps"] = steps;
    whole["train"]["eval_strategy"] = "no";
    whole["checkpoint"] = {{"save_strategy", "no"}};
    const std::string path = directory.write("reference.json", whole.dump(2));
    const Outcome outcome = run_stft(train_arguments(path), 300);
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
  }
  return run;
}

}  // namespace stft::test
