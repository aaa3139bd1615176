#include "checkpoint/checkpoint_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "io/directory.h"
#include "io/file.h"
#include "io/json.h"

namespace stft::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "checkpoint-";
constexpr const char* kStalePrefix = "stale-";
constexpr const char* kBestFile = "best.json";

std::string join(const std::string& directory, const std::string& name) {
  return (fs::path(directory) / name).string();
}

bool is_better(const Score& a, const Score& b) {
  return a.greater_is_better ? a.value > b.value : a.value < b.value;
}

}  // namespace

std::string checkpoint_name(int64_t step) {
  return kPrefix + std::to_string(step);
}

std::optional<int64_t> checkpoint_step(const std::string& name) {
  const std::string prefix = kPrefix;
  if (!name.starts_with(prefix)) {
    return std::nullopt;
  }
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, step);
  // The name that checkpoint_name gives and no other spelling of the number.
  return error == std::errc() && stop == end && checkpoint_name(step) == name && step >= 0 ? std::optional(step)
                                                                                           : std::nullopt;
}

std::vector<int64_t> checkpoint_steps(const std::string& run_directory) {
  std::vector<int64_t> steps;
  for (const std::string& name : io::directory_entries(run_directory)) {
    if (const auto step = checkpoint_step(name); step && io::is_directory(join(run_directory, name))) {
      steps.push_back(*step);
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::vector<std::string> checkpoint_faults(const std::string& directory, FileCheck check) {
  try {
    const auto manifest = read_manifest(directory);
    if (!manifest) {
      return {fmt::format("'{}' has no {}: it is unfinished, or not a checkpoint of stft", directory, kManifestFile)};
    }
    return file_faults(directory, *manifest, check);
  } catch (const UserError& error) {
    return {error.what()};
  }
}

void check_is_complete(const std::string& directory, FileCheck check) {
  const auto manifest = read_manifest(directory);
  // Written before the weights; nobody else writes it.
  if (!manifest && fs::exists(join(directory, kRunStateFile))) {
    throw UserError(fmt::format("'{}' has no {}: the checkpoint is unfinished", directory, kManifestFile));
  }
  const auto faults = manifest ? file_faults(directory, *manifest, check) : std::vector<std::string>();
  if (!faults.empty()) {
    throw UserError(fmt::format("'{}' is incomplete:\n{}", directory, fmt::join(faults, "\n")));
  }
}

NewestCheckpoint newest_checkpoint(const std::string& run_directory) {
  NewestCheckpoint result;
  auto steps = checkpoint_steps(run_directory);
  std::reverse(steps.begin(), steps.end());
  for (const int64_t step : steps) {
    const std::string name = checkpoint_name(step);
    const std::string path = join(run_directory, name);
    const auto faults = checkpoint_faults(path, FileCheck::kChecksums);
    if (!faults.empty()) {
      result.skipped.push_back(name + ": " + faults.front());
    } else if (!read_manifest(path)->has_optimizer) {
      result.skipped.push_back(name + ": it holds the model only (save_only_model)");
    } else {
      result.path = path;
      break;
    }
  }
  return result;
}

nlohmann::ordered_json to_json(const BestCheckpoint& best) {
  return {{"checkpoint", best.checkpoint}, {"metric", best.metric}, {"value", best.value}};
}

BestCheckpoint best_from_json(const io::Json& json, const std::string& origin) {
  BestCheckpoint best{io::get_string(json, "checkpoint", origin), io::get_string(json, "metric", origin),
                      io::get_double(json, "value", origin)};
  if (!checkpoint_step(best.checkpoint)) {
    throw UserError(origin + ": checkpoint: found \"" + best.checkpoint + "\", expected a name as \"checkpoint-50\"");
  }
  return best;
}

std::optional<BestCheckpoint> read_best(const std::string& run_directory) {
  const std::string path = join(run_directory, kBestFile);
  std::error_code error;
  if (!fs::exists(path, error)) {
    return std::nullopt;
  }
  return best_from_json(io::read_json_file(path), path);
}

void write_best(const std::string& run_directory, const BestCheckpoint& best) {
  io::write_file(join(run_directory, kBestFile), to_json(best).dump() + "\n");
}

void remove_best(const std::string& run_directory) {
  std::error_code error;
  fs::remove(join(run_directory, kBestFile), error);
  if (error) {
    throw SystemError("removing '" + join(run_directory, kBestFile) + "': " + error.message());
  }
}

std::optional<BestCheckpoint> best_by_metric(const std::string& run_directory, const MetricRule& rule,
                                             int64_t last_step) {
  std::optional<BestCheckpoint> best;
  for (const int64_t step : checkpoint_steps(run_directory)) {
    const std::string path = join(run_directory, checkpoint_name(step));
    if (step > last_step || !checkpoint_faults(path, FileCheck::kSizes).empty()) {
      continue;
    }
    const auto manifest = read_manifest(path);
    if (!manifest || !manifest->score) {
      continue;  // saved only because the run stopped, or without a rule
    }
    for (const std::string& name : rule.names) {
      const auto found = manifest->metrics.find(name);
      if (found == manifest->metrics.end() || std::isnan(found->second)) {
        continue;
      }
      const Score score{name, found->second, rule.greater_is_better};
      if (!best || is_better(score, {name, best->value, rule.greater_is_better})) {
        best = BestCheckpoint{checkpoint_name(step), name, found->second};
      }
      break;
    }
  }
  return best;
}

FoundBest find_best(const std::string& run_directory) {
  FoundBest result;
  const auto pointer = read_best(run_directory);
  if (pointer) {
    const std::string path = join(run_directory, pointer->checkpoint);
    const auto faults = checkpoint_faults(path, FileCheck::kChecksums);
    const auto score = faults.empty() ? read_manifest(path)->score : std::nullopt;
    if (score && score->metric == pointer->metric) {
      return {path, {pointer->metric, pointer->value, score->greater_is_better}, {}, false};
    }
    result.skipped.push_back(pointer->checkpoint + ": " +
                             (faults.empty() ? "it has no score by " + pointer->metric : faults.front()));
  }
  std::optional<std::pair<std::string, Score>> found;
  for (const int64_t step : checkpoint_steps(run_directory)) {
    const std::string name = checkpoint_name(step);
    const std::string path = join(run_directory, name);
    if (pointer && name == pointer->checkpoint) {
      continue;
    }
    const auto faults = checkpoint_faults(path, FileCheck::kChecksums);
    if (!faults.empty()) {
      result.skipped.push_back(name + ": " + faults.front());
      continue;
    }
    const auto score = read_manifest(path)->score;
    if (!score || (pointer && score->metric != pointer->metric)) {
      result.skipped.push_back(name + ": it has no score" + (pointer ? " by " + pointer->metric : ""));
    } else if (!found || is_better(*score, found->second)) {
      found = {path, *score};
    }
  }
  if (!found) {
    std::string looked_at;
    for (const std::string& line : result.skipped) {
      looked_at += "\n  " + line;
    }
    throw UserError("'" + run_directory + "' has no complete checkpoint with a score" +
                    (looked_at.empty() ? "; the run saved none" : ":" + looked_at));
  }
  return {found->first, found->second, result.skipped, true};
}

void rotate_checkpoints(const std::string& run_directory, int64_t limit, const std::optional<std::string>& best) {
  const auto steps = checkpoint_steps(run_directory);
  auto left = static_cast<int64_t>(steps.size());
  for (const int64_t step : steps) {
    const std::string name = checkpoint_name(step);
    if (left <= limit || step == steps.back()) {
      return;
    }
    if (name != best) {
      io::remove_directory(join(run_directory, name));
      left -= 1;
    }
  }
}

bool is_directory_of_run(const std::string& name) {
  const std::string prefix = kStalePrefix;
  return name == "final" || checkpoint_step(name) ||
         (name.starts_with(prefix) && checkpoint_step(name.substr(prefix.size())));
}

void recover_replaced(const std::string& run_directory) {
  for (const std::string& name : io::directory_entries(run_directory)) {
    const std::string suffix = ".old";
    if (name.ends_with(suffix) && is_directory_of_run(name.substr(0, name.size() - suffix.size()))) {
      io::recover_directory(join(run_directory, name.substr(0, name.size() - suffix.size())));
    }
  }
}

void clean_leftovers(const std::string& run_directory) {
  for (const char* file : {kBestFile, kTrainerStateFile, kRecipeFile}) {
    std::error_code ignored;  // in nobody's way
    fs::remove(join(run_directory, file + std::string(".tmp")), ignored);
  }
  recover_replaced(run_directory);
  for (const std::string& name : io::directory_entries(run_directory)) {
    // Exactly the names that interrupted work leaves: another suffix is the user's.
    for (const std::string suffix : {".tmp", ".old", ".removed", ".tmp.removed"}) {
      if (name.ends_with(suffix) && is_directory_of_run(name.substr(0, name.size() - suffix.size()))) {
        std::error_code error;
        fs::remove_all(join(run_directory, name), error);
        if (error) {
          throw SystemError("removing '" + join(run_directory, name) + "': " + error.message());
        }
        break;
      }
    }
  }
}

void set_aside_after(const std::string& run_directory, int64_t step) {
  for (const int64_t other : checkpoint_steps(run_directory)) {
    if (other > step) {
      const std::string name = checkpoint_name(other);
      io::remove_directory(join(run_directory, kStalePrefix + name));
      std::error_code error;
      fs::rename(join(run_directory, name), join(run_directory, kStalePrefix + name), error);
      if (error) {
        throw SystemError("renaming '" + join(run_directory, name) + "': " + error.message());
      }
    }
  }
}

void remove_set_aside(const std::string& run_directory, int64_t step) {
  const std::string prefix = kStalePrefix;
  for (const std::string& name : io::directory_entries(run_directory)) {
    if (name.starts_with(prefix)) {
      const auto of_name = checkpoint_step(name.substr(prefix.size()));
      if (of_name && *of_name <= step) {
        io::remove_directory(join(run_directory, name));
      }
    }
  }
}

}  // namespace stft::checkpoint
