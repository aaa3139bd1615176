// Runs that something stops in the middle, and what they leave.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "e2e/process.h"
#include "e2e/run_files.h"

namespace stft::test {

// small_recipe() that saves a checkpoint after every step: AdamW, shuffled, `type` FULL_STATE_DICT or
// SHARDED_STATE_DICT. It has more steps than any test takes.
Json saving_recipe(const TemporaryDirectory& directory, const std::string& type);

// The arguments of stft train on 2 ranks, and more of them.
std::vector<std::string> train_arguments(const std::string& recipe_path, const std::vector<std::string>& more = {});

bool wait_for_text(Process& process, const std::string& text, double seconds = 120);

// Looks for the path without a pause. False when the process ends before it is there.
bool wait_for_path(Process& process, const std::string& path, double seconds = 120);

// All ranks of a launcher, as soon as the last one exists; fewer when the launcher ends before.
std::vector<RankProcess> wait_for_ranks(Process& launcher, size_t count, double seconds = 120);

const ProcessHandle& handle_of(const std::vector<RankProcess>& ranks, int rank);

// Steps of the directories named checkpoint-<step>, ascending.
std::vector<int64_t> checkpoint_steps(const std::string& run_directory);
std::optional<int64_t> newest_checkpoint(const std::string& run_directory);

// Names in a run's directory that end as only names of unfinished things do.
std::vector<std::string> leftovers(const std::string& run_directory);

// What stft verify says about each directory named checkpoint-<step> that it does not accept; empty: all are whole.
std::string damaged_checkpoints(const std::string& run_directory);

// Paths below two directories that are missing in one of them or differ.
std::vector<std::string> different_files(const std::string& a, const std::string& b);

// The run of `recipe` that is not interrupted: `steps` steps, without checkpoints, on 2 ranks, in the directory's
// reference-<steps>/, which is returned. It runs once.
std::string uninterrupted_run(const TemporaryDirectory& directory, const Json& recipe, int64_t steps);

}  // namespace stft::test
