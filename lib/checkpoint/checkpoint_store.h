// The checkpoints of a run's directory: which there are, which are whole, which is best, which may go.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "io/json.h"

namespace stft::checkpoint {

// "checkpoint-50".
std::string checkpoint_name(int64_t step);

// The step of such a name; none for any other name ("checkpoint-50.tmp").
std::optional<int64_t> checkpoint_step(const std::string& name);

// Steps of the directories that are named as checkpoints, ascending, whole or not.
std::vector<int64_t> checkpoint_steps(const std::string& run_directory);

// Why a checkpoint of our own cannot be used, one line each; empty: it is whole.
std::vector<std::string> checkpoint_faults(const std::string& directory, FileCheck check);

// UserError when `directory` is a checkpoint of our own that is unfinished or whose files are not what its manifest
// says. Nothing for other directories.
void check_is_complete(const std::string& directory, FileCheck check);

// What automatic resuming finds: the newest whole checkpoint that has an optimizer, and why newer ones were passed
// over.
struct NewestCheckpoint {
  std::optional<std::string> path;
  std::vector<std::string> skipped;  // "checkpoint-50: '...' is missing"
};
NewestCheckpoint newest_checkpoint(const std::string& run_directory);

// best.json.
struct BestCheckpoint {
  std::string checkpoint;  // the name, relative to the run's directory
  std::string metric;
  double value = 0;
};
// As best.json holds it. UserError naming `origin` when it is malformed or names no checkpoint.
nlohmann::ordered_json to_json(const BestCheckpoint& best);
BestCheckpoint best_from_json(const io::Json& json, const std::string& origin);
// None when there is no best.json; UserError when it is malformed.
std::optional<BestCheckpoint> read_best(const std::string& run_directory);
void write_best(const std::string& run_directory, const BestCheckpoint& best);
void remove_best(const std::string& run_directory);

// The best of the whole checkpoints up to `last_step` that were saved as scheduled, by a metric that the evaluation at
// their step found; the first of `rule.names` that there is. None when none has it.
struct MetricRule {
  std::vector<std::string> names;
  bool greater_is_better = true;
};
std::optional<BestCheckpoint> best_by_metric(const std::string& run_directory, const MetricRule& rule,
                                             int64_t last_step);

// The whole checkpoint that is best: that of best.json, or, when it is gone or broken, the best among the others by the
// scores of their manifests (`is_fallback`). UserError telling what was looked at when there is none.
struct FoundBest {
  std::string path;
  Score score;
  std::vector<std::string> skipped;
  bool is_fallback = false;
};
FoundBest find_best(const std::string& run_directory);

// Deletes the oldest checkpoints until `limit` are left; `best` and the newest stay, whatever the limit.
void rotate_checkpoints(const std::string& run_directory, int64_t limit, const std::optional<std::string>& best);

// Brings back what an interrupted replacement moved aside ("checkpoint-50.old").
void recover_replaced(const std::string& run_directory);

// At the start of a run: brings back what an interrupted replacement moved aside and removes what interrupted saves and
// deletions left ("checkpoint-50.tmp").
void clean_leftovers(const std::string& run_directory);

// Checkpoints after `step` belong to a past that a resumed run leaves: they get names that nobody looks for
// ("stale-checkpoint-50").
void set_aside_after(const std::string& run_directory, int64_t step);
// Removes those up to `step`, which the new run has passed.
void remove_set_aside(const std::string& run_directory, int64_t step);

}  // namespace stft::checkpoint
