#include "train.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "dist/launch.h"
#include "dist/rank_environment.h"
#include "dist/stop_signals.h"
#include "exit_codes.h"
#include "io/directory.h"
#include "locate_model.h"
#include "rank_process.h"
#include "recipe/recipe.h"
#include "train/adapter.h"
#include "train/handshake.h"
#include "train/mesh.h"
#include "train/resume.h"
#include "train/run.h"
#include "train/trainer.h"

namespace stft::app {
namespace {

constexpr double kLockPatienceSeconds = 10;

train::OutputDirUse output_dir_use(const TrainOptions& options) {
  if (options.resume && options.overwrites) {
    throw UserError("--resume and --overwrite contradict each other");
  }
  return options.resume       ? train::OutputDirUse::kGoesOn
         : options.overwrites ? train::OutputDirUse::kReplaces
                              : train::OutputDirUse::kNew;
}

std::vector<train::Fact> facts(const TrainOptions& options, const recipe::Recipe& recipe) {
  auto facts = opening_facts(options.resume       ? "train --resume " + *options.resume
                             : options.overwrites ? "train --overwrite"
                                                  : "train");
  facts.push_back(train::recipe_fact(recipe));
  return facts;
}

int run_rank(const TrainOptions& options, recipe::Recipe recipe, const dist::RankInfo& info) {
  configure_log(info);
  at::set_num_threads(static_cast<int>(threads_per_rank(recipe.launch.threads_per_rank, info.local_world_size)));
  const std::string output_dir = recipe.run.output_dir;
  if (info.rank == 0) {
    train::check_output_dir(recipe, output_dir_use(options));
  }
  // One run at a time works on a directory; a predecessor that was just killed may still be dying.
  std::optional<io::DirectoryLock> lock;
  const auto lock_output_dir = [&] {
    if (info.rank == 0 && !lock) {
      io::make_directories(output_dir);
      lock.emplace(output_dir, kLockPatienceSeconds);
    }
  };
  auto world = train::join_world(info, recipe.launch);
  train::agree_on_facts(*world, facts(options, recipe));
  recipe = train::with_stored_adapter(with_located_model(std::move(recipe), info, *world));
  std::optional<train::ResumePoint> resumed;
  if (options.resume) {
    if (io::is_directory(output_dir)) {
      lock_output_dir();
    }
    resumed = train::find_resume_point(recipe, {*options.resume == "auto", *options.resume}, *world);
  }
  if (info.rank == 0 && options.resume) {
    const bool is_in_place = resumed && resumed->is_in_place;
    const auto otherwise = resumed ? train::OutputDirUse::kNew : train::OutputDirUse::kReplaces;
    train::check_output_dir(recipe, is_in_place ? train::OutputDirUse::kGoesOn : otherwise);
  }
  train::Run run = train::assemble(std::move(recipe), std::move(world), std::move(resumed));
  lock_output_dir();
  if (info.rank == 0) {
    if (run.resumed && run.resumed->is_in_place) {
      train::prepare_output_dir(output_dir, *run.resumed);
    } else {
      train::clear_output_dir(output_dir);
    }
  }
  return train::Trainer(run, dist::stop_requested).train() == train::Outcome::kStopped ? kStopped : kDone;
}

}  // namespace

int run_train(const TrainOptions& options, const std::vector<std::string>& arguments) {
  const auto info = dist::rank_from_environment();
  if (info) {
    dist::catch_stop_signals();
    if (info->launcher_pid) {
      dist::join_launcher(*info->launcher_pid);
    }
  } else {
    dist::hold_stop_signals();
  }
  std::vector<std::string> overrides = options.overrides;
  if (options.nproc) {
    overrides.push_back(fmt::format("launch.nproc={}", *options.nproc));
  }
  recipe::Recipe recipe = recipe::load(options.recipe_path, overrides);
  if (info) {
    try {
      return run_rank(options, recipe::resolve(std::move(recipe), info->world_size), *info);
    } catch (const c10::Error& error) {
      translate(error);
    }
  }
  const int64_t nproc = recipe.launch.nproc.value_or(1);
  const int64_t threads = threads_per_rank(recipe.launch.threads_per_rank, nproc);
  recipe = recipe::resolve(std::move(recipe), nproc);
  train::check_output_dir(recipe, output_dir_use(options));
  recipe = with_located_model(std::move(recipe));  // before the ranks, which then find this commit
  return dist::launch({with_revision_set(arguments, recipe), nproc, threads, /*saves_on_stop=*/true});
}

}  // namespace stft::app
