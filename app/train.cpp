#include "train.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "dist/launch.h"
#include "dist/rank_environment.h"
#include "dist/stop_signals.h"
#include "exit_codes.h"
#include "recipe/recipe.h"
#include "train/mesh.h"
#include "train/run.h"
#include "train/trainer.h"

namespace stft::app {
namespace {

int64_t threads_per_rank(const recipe::Recipe& recipe, int64_t local_ranks) {
  const auto cores = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  return recipe.launch.threads_per_rank.value_or(std::max<int64_t>(1, cores / local_ranks));
}

void configure_log(const dist::RankInfo& info) {
  log::Settings settings;
  settings.shows_info = info.rank == 0;
  settings.is_terminal = info.launcher_pid ? info.parent_is_terminal : ::isatty(STDERR_FILENO) != 0;
  settings.uses_colour = settings.is_terminal && std::getenv("NO_COLOR") == nullptr;
  log::configure(settings);
}

// LibTorch's own errors: a failed allocation is the machine's, anything else our mistake. The first line says it; the
// rest is a stack.
[[noreturn]] void translate(const c10::Error& error) {
  const std::string text(error.what_without_backtrace());
  const std::string first = text.substr(0, text.find('\n'));
  if (first.find("alloc") != std::string::npos) {
    throw SystemError("out of memory: " + first);
  }
  throw InternalError(first);
}

int run_rank(const TrainOptions& options, recipe::Recipe recipe, const dist::RankInfo& info) {
  configure_log(info);
  at::set_num_threads(static_cast<int>(threads_per_rank(recipe, info.local_world_size)));
  const std::string output_dir = recipe.run.output_dir;
  if (info.rank == 0) {
    train::check_output_dir(recipe, options.overwrites);
  }
  auto mesh = std::make_unique<train::Mesh>(info, recipe.launch, recipe.sharding.strategy);
  train::Run run = train::assemble(std::move(recipe), std::move(mesh));
  if (info.rank == 0) {
    train::clear_output_dir(output_dir);
  }
  train::Trainer(run).train();
  return kDone;
}

}  // namespace

int run_train(const TrainOptions& options, const std::vector<std::string>& arguments) {
  const auto info = dist::rank_from_environment();
  if (info) {
    dist::catch_stop_signals();
    if (info->launcher_pid) {
      dist::join_launcher(*info->launcher_pid);
    }
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
  recipe = recipe::resolve(std::move(recipe), nproc);
  train::check_output_dir(recipe, options.overwrites);
  return dist::launch({arguments, nproc, threads_per_rank(recipe, nproc), /*saves_on_stop=*/true});
}

}  // namespace stft::app
