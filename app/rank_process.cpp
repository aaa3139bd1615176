#include "rank_process.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/log.h"

namespace stft::app {

int64_t threads_per_rank(std::optional<int64_t> given, int64_t local_ranks) {
  const auto cores = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  return given.value_or(std::max<int64_t>(1, cores / local_ranks));
}

void configure_log(const dist::RankInfo& info) {
  log::Settings settings;
  settings.shows_info = info.rank == 0;
  settings.is_terminal = info.launcher_pid ? info.parent_is_terminal : ::isatty(STDERR_FILENO) != 0;
  settings.uses_colour = settings.is_terminal && std::getenv("NO_COLOR") == nullptr;
  log::configure(settings);
}

std::vector<train::Fact> opening_facts(const std::string& command) {
  return {{"version", STFT_VERSION}, {"command", command}};
}

void translate(const c10::Error& error) {
  const std::string text(error.what_without_backtrace());
  const std::string first = text.substr(0, text.find('\n'));
  if (first.find("alloc") != std::string::npos) {
    throw SystemError("out of memory: " + first);
  }
  throw InternalError(first);
}

}  // namespace stft::app
