#include "e2e/checkpoint_run.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

namespace stft::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

std::set<std::string> files_of(const std::string& directory) {
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) {
      files.insert(entry.path().lexically_relative(directory).string());
    }
  }
  return files;
}

}  // namespace

Outcome try_train(const TrainCall& call) {
  std::vector<std::string> arguments = {"train",   call.recipe,
                                        "--nproc", std::to_string(call.ranks),
                                        "--set",   "run.output_dir=" + call.output_dir,
                                        "--set",   "launch.threads_per_rank=1"};
  for (const std::string& setting : call.settings) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  arguments.insert(arguments.end(), call.flags.begin(), call.flags.end());
  return run_stft(arguments);
}

Outcome train(const TrainCall& call) {
  Outcome outcome = try_train(call);
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return outcome;
}

std::string succeed(const std::vector<std::string>& arguments) {
  const Outcome outcome = run_stft(arguments);
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return outcome.out;
}

void check_refused(const std::vector<std::string>& arguments, const std::vector<std::string>& expected) {
  const Outcome outcome = run_stft(arguments);
  CAPTURE(arguments, outcome.err);
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.out.empty());
  for (const std::string& part : expected) {
    CHECK_THAT(outcome.err, Contains(part));
  }
  for (const char* sign : {"internal error", "c10::", "terminate", "what()", "Exception", "#0 "}) {
    CHECK_THAT(outcome.err, !Contains(sign));
  }
}

void copy_tree(const std::string& from, const std::string& to) {
  fs::remove_all(to);
  fs::copy(from, to, fs::copy_options::recursive);
}

std::vector<std::string> tree_differences(const std::string& a, const std::string& b) {
  std::set<std::string> all = files_of(a);
  all.merge(files_of(b));
  std::vector<std::string> different;
  for (const std::string& file : all) {
    const std::string in_a = a + "/" + file;
    const std::string in_b = b + "/" + file;
    if (!fs::exists(in_a) || !fs::exists(in_b) || read_bytes(in_a) != read_bytes(in_b)) {
      different.push_back(file);
    }
  }
  return different;
}

std::vector<std::string> checkpoints_of(const std::string& run_directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(run_directory)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("checkpoint-")) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end(),
            [](const auto& a, const auto& b) { return a.size() != b.size() ? a.size() < b.size() : a < b; });
  return names;
}

std::string best_of(const std::string& run_directory) {
  return run_directory + "/" + read_json(run_directory + "/best.json").at("checkpoint").get<std::string>();
}

Json logged_metrics(const std::string& run_directory, int step) {
  Json metrics;
  for (const Json& eval : read_log(run_directory).evals) {
    if (eval.at("step") == step) {
      metrics = eval.at("metrics");
    }
  }
  REQUIRE(metrics.is_object());
  return metrics;
}

bool are_close(const Json& a, const Json& b) {
  if (a.size() != b.size() || a.empty()) {
    return false;
  }
  return std::all_of(a.items().begin(), a.items().end(), [&](const auto& item) {
    const auto other = b.find(item.key());
    return other != b.end() && std::abs(item.value().template get<double>() - other->template get<double>()) <= 1e-6;
  });
}

void flip_byte(const std::string& path) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  REQUIRE(file.is_open());
  const auto middle = static_cast<std::streamoff>(fs::file_size(path) / 2);
  file.seekg(middle);
  const int byte = file.get();
  file.seekp(middle);
  file.put(static_cast<char>(byte ^ 0x10));
}

}  // namespace stft::test
