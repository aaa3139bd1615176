#include "locate_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/stored_model.h"
#include "dist/stop_signals.h"
#include "hub/hub_config.h"
#include "model/model_spec.h"
#include "peft/adapter_file.h"
#include "recipe/files.h"
#include "train/first_rank.h"
#include "train/handshake.h"

namespace stft::app {
namespace {

constexpr double kSecondsBetweenLiveLines = 0.1;
constexpr double kSecondsBetweenMilestones = 10;

std::string megabytes(std::int64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / 1e6);
}

// A live line on a terminal; elsewhere a line at the start, at times, and at the end.
class DownloadReport {
 public:
  explicit DownloadReport(hub::ModelRequest request) : request_(std::move(request)) {}

  void tell(const hub::Progress& progress) {
    const double now = monotonic_seconds();
    if (start_ == 0) {
      start_ = last_milestone_ = now;
      log::info(fmt::format("downloading model {} (revision {}, commit {})", request_.id, request_.revision,
                            progress.commit));
    }
    if (progress.file.empty()) {
      finish(progress, now);
      return;
    }
    const std::string text =
        fmt::format("{}: {} of {} MB, {} MB/s, {} ({} of {} files)", request_.id, megabytes(progress.received_bytes),
                    megabytes(progress.total_bytes),
                    megabytes(static_cast<std::int64_t>(static_cast<double>(progress.received_bytes) /
                                                        std::max(now - start_, 0.1))),
                    progress.file, progress.files_done, progress.files);
    if (log::settings().is_terminal) {
      if (now - last_live_ >= kSecondsBetweenLiveLines) {
        log::live(text);
        last_live_ = now;
      }
    } else if (now - last_milestone_ >= kSecondsBetweenMilestones) {
      log::info(text);
      last_milestone_ = now;
    }
  }

 private:
  void finish(const hub::Progress& progress, double now) {
    log::live("");
    log::info(fmt::format("downloaded {} files, {} MB in {:.1f} s", progress.files_done,
                          megabytes(progress.received_bytes), now - start_));
  }

  hub::ModelRequest request_;
  double start_ = 0;
  double last_live_ = 0;
  double last_milestone_ = 0;
};

// A launcher holds stop signals back for its ranks; before there are any, they end the download.
bool is_stop_pending() {
  sigset_t pending{};
  ::sigpending(&pending);
  return dist::stop_requested() || std::any_of(dist::kStopSignals.begin(), dist::kStopSignals.end(),
                                               [&](int signal) { return ::sigismember(&pending, signal) == 1; });
}

hub::Snapshot fetch(const hub::ModelRequest& request) {
  DownloadReport report(request);
  hub::Observer observer;
  observer.on_progress = [&](const hub::Progress& progress) { report.tell(progress); };
  observer.on_warning = [](const std::string& message) { log::warn(message); };
  observer.should_stop = is_stop_pending;
  return hub::fetch_model(request, hub::settings_from_environment(), observer);
}

std::optional<hub::ModelRequest> request_for(const NamedModel& model) {
  if (!recipe::is_hub_model(model.name_or_path)) {
    if (model.revision != NamedModel{}.revision) {
      throw UserError(fmt::format("--revision is for the id of a hub's model; '{}' is none", model.name_or_path));
    }
    return std::nullopt;
  }
  if (!hub::is_revision(model.revision)) {
    throw UserError(fmt::format("revision '{}' is no branch, tag or commit", model.revision.substr(0, 80)));
  }
  return hub::ModelRequest{model.name_or_path, model.revision, model.wanted};
}

void show_progress_of_launcher() {
  log::Settings settings = log::settings();
  settings.is_terminal = ::isatty(STDERR_FILENO) != 0;
  log::configure(settings);
}

NamedModel named_model(const recipe::Recipe& recipe) {
  return {recipe.model.name_or_path, recipe.model.revision};
}

// What an adapter's configuration names as its base: a directory, or the id of a hub's model; none for a whole model.
std::optional<NamedModel> base_of(const std::string& directory, BaseUse use) {
  const bool has_modules = std::filesystem::exists(std::filesystem::path(directory) / "modules.json");
  if (!peft::is_adapter_directory(directory) || (use == BaseUse::kModules && has_modules) ||
      (use == BaseUse::kTokenizer && model::has_tokenizer(directory))) {
    return std::nullopt;
  }
  const hub::Wanted wanted = use == BaseUse::kTokenizer ? hub::Wanted::kTokenizer : hub::Wanted::kModel;
  if (const auto base = checkpoint::local_base(directory)) {
    return NamedModel{*base};
  }
  const auto config = peft::read_adapter_config(directory);
  if (!recipe::is_hub_model(config.base_model)) {
    throw UserError(fmt::format("{}: base_model_name_or_path: no such directory '{}'", config.path, config.base_model));
  }
  return NamedModel{config.base_model, config.revision.value_or(NamedModel{}.revision), wanted};
}

LocatedModel with_base(LocatedModel located, std::string base) {
  if (peft::is_adapter_directory(base)) {
    throw UserError(fmt::format("'{}': its base model '{}' is an adapter itself", located.directory, base));
  }
  located.base = std::move(base);
  return located;
}

LocatedModel locate_itself(const NamedModel& model) {
  const auto request = request_for(model);
  if (!request) {
    return {model.name_or_path};
  }
  show_progress_of_launcher();
  const hub::Snapshot found = fetch(*request);
  return {found.directory, found.commit};
}

LocatedModel locate_itself(const NamedModel& model, const dist::RankInfo& info, dist::ProcessGroup& world) {
  const bool is_of_hub = recipe::is_hub_model(model.name_or_path);
  train::agree_on_facts(world, {{"model", (is_of_hub ? "the hub's model " : "the directory ") + model.name_or_path},
                                {"revision", model.revision}});
  const auto request = request_for(model);
  if (!request) {
    return {model.name_or_path};
  }
  const std::string located = train::on_first_rank(world, [&] {
    auto found = info.launcher_pid ? hub::find_model(*request, hub::settings_from_environment()) : std::nullopt;
    if (!found) {
      found = fetch(*request);
    }
    return found->commit + found->directory;
  });
  const std::size_t length = hub::kCommitDigits;
  return {located.substr(length), located.substr(0, length)};
}

recipe::Recipe with_model(recipe::Recipe recipe, const LocatedModel& located, recipe::Purpose purpose) {
  recipe.model.base = located.base;
  if (located.commit) {
    recipe = recipe::with_snapshot(std::move(recipe), located.directory, purpose);
    recipe.model.revision = *located.commit;
  }
  return recipe;
}

}  // namespace

std::optional<hub::ModelRequest> hub_request(const recipe::Recipe& recipe) {
  return request_for(named_model(recipe));
}

LocatedModel locate_model(const NamedModel& model) {
  LocatedModel located = locate_itself(model);
  const auto base = base_of(located.directory, model.base_use);
  return base ? with_base(std::move(located), locate_itself(*base).directory) : located;
}

LocatedModel locate_model(const NamedModel& model, const dist::RankInfo& info, dist::ProcessGroup& world) {
  LocatedModel located = locate_itself(model, info, world);
  const auto base = base_of(located.directory, model.base_use);
  train::agree_on_facts(world, {{"the adapter's base", base ? base->name_or_path + ", " + base->revision : "none"}});
  return base ? with_base(std::move(located), locate_itself(*base, info, world).directory) : located;
}

recipe::Recipe with_located_model(recipe::Recipe recipe, recipe::Purpose purpose) {
  const LocatedModel located = locate_model(named_model(recipe));
  return with_model(std::move(recipe), located, purpose);
}

recipe::Recipe with_located_model(recipe::Recipe recipe, const dist::RankInfo& info, dist::ProcessGroup& world,
                                  recipe::Purpose purpose) {
  const LocatedModel located = locate_model(named_model(recipe), info, world);
  return with_model(std::move(recipe), located, purpose);
}

std::vector<std::string> with_options(std::vector<std::string> arguments, const std::vector<std::string>& options) {
  arguments.insert(std::find(arguments.begin(), arguments.end(), "--"), options.begin(), options.end());
  return arguments;
}

std::vector<std::string> with_revision_set(std::vector<std::string> arguments, const recipe::Recipe& located) {
  if (!located.model.snapshot.empty()) {
    return with_options(std::move(arguments), {"--set", "model.revision=" + located.model.revision});
  }
  return arguments;
}

}  // namespace stft::app
