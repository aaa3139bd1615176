#include "train/resume.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/attempt.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/manifest.h"
#include "io/directory.h"
#include "io/file.h"
#include "recipe/compare.h"
#include "train/run_log.h"
#include "train/saving.h"

namespace stft::train {
namespace {

namespace fs = std::filesystem;

std::string read_beside(const std::string& checkpoint, const char* name) {
  return io::read_text_file((fs::path(checkpoint) / name).string());
}

// The recipe's own settings against those that the checkpoint was made with.
void check_recipe(const recipe::Recipe& recipe, const std::string& checkpoint) {
  const std::string origin = (fs::path(checkpoint) / checkpoint::kRecipeFile).string();
  const auto differences = recipe::compare_resolved({recipe::dump(recipe), "the recipe"},
                                                    {read_beside(checkpoint, checkpoint::kRecipeFile), origin});
  std::string problems;
  for (const recipe::Difference& fixed : recipe::fixed_differences(differences)) {
    problems += fmt::format("\n{}: {} now, {} when the checkpoint was written", recipe::where(recipe, fixed.key),
                            fixed.ours, fixed.theirs);
  }
  if (!problems.empty()) {
    throw UserError(
        fmt::format("'{}' belongs to another run; a resumed run keeps these keys:{}", checkpoint, problems));
  }
}

void check_given(const std::string& directory) {
  if (!io::is_directory(directory)) {
    throw UserError(fmt::format("--resume: '{}' is not a directory", directory));
  }
  if (!fs::exists(fs::path(directory) / checkpoint::kManifestFile) &&
      !checkpoint::checkpoint_steps(directory).empty()) {
    throw UserError(fmt::format(
        "--resume: '{}' is a run; give one of its checkpoints, or --resume auto with its recipe", directory));
  }
  const auto faults = checkpoint::checkpoint_faults(directory, checkpoint::FileCheck::kChecksums);
  if (!faults.empty()) {
    throw UserError(fmt::format("--resume: the checkpoint cannot be used:\n{}", fmt::join(faults, "\n")));
  }
  if (!checkpoint::read_manifest(directory)->has_optimizer) {
    throw UserError(fmt::format("--resume: '{}' holds the model only (save_only_model), not the optimizer", directory));
  }
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) {
    path.pop_back();
  }
  return path;
}

std::string choose(const recipe::Recipe& recipe, const ResumeRequest& request) {
  if (!request.is_auto) {
    check_given(request.directory);
    check_recipe(recipe, request.directory);
    return without_slash(request.directory);
  }
  const std::string& output_dir = recipe.run.output_dir;
  checkpoint::recover_replaced(output_dir);
  const auto newest = checkpoint::newest_checkpoint(output_dir);
  if (!newest.path && !newest.skipped.empty()) {
    throw UserError(
        fmt::format("--resume auto: none of the checkpoints in '{}' can be used; use --overwrite to start "
                    "anew:\n{}",
                    output_dir, fmt::join(newest.skipped, "\n")));
  }
  for (const std::string& line : newest.skipped) {
    log::warn("resume: passing over " + line);
  }
  if (!newest.path) {
    if (fs::exists(fs::path(output_dir) / "final")) {
      throw UserError(
          fmt::format("--resume auto: '{}' holds a finished run without a checkpoint to go on from; use "
                      "--overwrite to start anew",
                      output_dir));
    }
    log::info("resume: no checkpoint in " + output_dir + ", starting from the beginning");
    return {};
  }
  check_recipe(recipe, *newest.path);
  return *newest.path;
}

// On rank 0: the best checkpoint so far, by the recipe's rule: that of the state, or, when it is gone or belongs to
// another rule, the best of those that are there.
std::optional<checkpoint::BestCheckpoint> best_so_far(const recipe::Recipe& recipe, const ResumePoint& point) {
  const auto rule = best_rule(recipe);
  if (!point.is_in_place || !rule) {
    return std::nullopt;
  }
  const auto& best = point.state.best;
  if (best && has_same_rule(point.state.best_progress, *rule)) {
    const std::string path = (fs::path(recipe.run.output_dir) / best->checkpoint).string();
    const auto faults = checkpoint::checkpoint_faults(path, checkpoint::FileCheck::kSizes);
    if (faults.empty()) {
      return best;
    }
    log::warn(fmt::format("resume: the best checkpoint so far, {} ({} {:.6g}), cannot be used: {}", best->checkpoint,
                          best->metric, best->value, faults.front()));
  }
  const auto found = checkpoint::best_by_metric(
      recipe.run.output_dir, {metric_spellings(rule->metric), rule->greater_is_better}, point.state.position.step);
  if (found) {
    log::info(fmt::format("resume: the best checkpoint so far is {} ({} {:.6g})", found->checkpoint, found->metric,
                          found->value));
  }
  return found;
}

// Collective: rank 0 looks, all ranks take what it found. A rule that changed starts its patience anew.
void agree_on_best(const recipe::Recipe& recipe, ResumePoint& point, dist::ProcessGroup& world) {
  checkpoint::Attempt attempt(world, "resuming");
  std::string text;
  if (world.rank() == 0) {
    attempt.run([&] {
      const auto best = best_so_far(recipe, point);
      text = best ? checkpoint::to_json(*best).dump() : "";
    });
  }
  attempt.agree();
  text = dist::broadcast_text(world, text);
  point.state.best.reset();
  if (!text.empty()) {
    point.state.best = checkpoint::best_from_json(io::parse_json(text, "resuming"), "resuming");
  }
  const auto rule = best_rule(recipe);
  if (rule && !has_same_rule(point.state.best_progress, *rule)) {
    point.state.best_progress = {};
    if (point.state.best) {
      point.state.best_progress.best = point.state.best->value;
    }
  }
}

}  // namespace

std::optional<ResumePoint> find_resume_point(const recipe::Recipe& recipe, const ResumeRequest& request,
                                             dist::ProcessGroup& world) {
  std::string chosen;
  checkpoint::Attempt attempt(world, "resuming");
  if (world.rank() == 0) {
    attempt.run([&] { chosen = choose(recipe, request); });
  }
  attempt.agree();
  chosen = dist::broadcast_text(world, chosen);
  if (chosen.empty()) {
    return std::nullopt;
  }
  ResumePoint point;
  point.checkpoint = chosen;
  point.is_in_place = io::lies_in(chosen, recipe.run.output_dir);
  attempt.run([&] {
    const std::string origin = (fs::path(chosen) / checkpoint::kRunStateFile).string();
    point.state = run_state_from_json(read_beside(chosen, checkpoint::kRunStateFile), origin);
    if (const int64_t step = checkpoint::read_manifest(chosen)->step; step != point.state.position.step) {
      throw UserError(
          fmt::format("{}: position.step is {}, the manifest's step {}", origin, point.state.position.step, step));
    }
  });
  attempt.agree();
  agree_on_best(recipe, point, world);
  return point;
}

void prepare_output_dir(const std::string& output_dir, const ResumePoint& point) {
  if (!point.is_in_place) {
    return;
  }
  const int64_t step = point.state.position.step;
  checkpoint::clean_leftovers(output_dir);
  checkpoint::set_aside_after(output_dir, step);
  cut_log(output_dir, {step, point.state.evaluated_step == step});
  if (point.state.best) {
    checkpoint::write_best(output_dir, *point.state.best);
  } else {
    checkpoint::remove_best(output_dir);
  }
}

}  // namespace stft::train
