#include "hub/snapshot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "hub/cache.h"
#include "hub/hub_config.h"
#include "hub/repository.h"
#include "hub/transfer.h"

namespace stft::hub {
namespace {

namespace fs = std::filesystem;

class CachedFiles : public FileSource {
 public:
  CachedFiles(const RepoCache& cache, std::string commit) : cache_(cache), commit_(std::move(commit)) {}

  Presence presence(const std::string& file) override { return cache_.presence(commit_, file); }
  std::optional<std::string> open(const std::string& file) override {
    return presence(file) == Presence::kCached ? std::optional(cache_.snapshot_file(commit_, file)) : std::nullopt;
  }

 private:
  const RepoCache& cache_;
  std::string commit_;
};

// What the cache has of a revision.
struct CachedModel {
  Snapshot snapshot;
  FileChoice choice;
  std::vector<std::string> missing;  // of the needed ones

  bool is_usable() const { return missing.empty() && choice.lacking.empty(); }
  bool is_whole() const { return is_usable() && choice.unknown.empty(); }
};

std::optional<CachedModel> look_into(const RepoCache& cache, const ModelRequest& request) {
  const auto commit = cache.commit_of(request.revision);
  std::error_code error;
  if (!commit || !fs::is_directory(cache.snapshot(*commit), error)) {
    return std::nullopt;
  }
  CachedModel model;
  model.snapshot = {cache.snapshot(*commit), *commit};
  CachedFiles files(cache, *commit);
  model.choice = choose_files(files, request.wanted);
  for (const std::string& file : model.choice.needed) {
    if (files.presence(file) != Presence::kCached) {
      model.missing.push_back(file);
    }
  }
  return model;
}

void warn(const Observer& observer, const std::string& message) {
  if (observer.on_warning) {
    observer.on_warning(message);
  }
}

// The cache's copy where the hub gives none; `reason` says why.
Snapshot use_cached(const ModelRequest& request, const CachedModel& cached, const Observer& observer,
                    const std::string& reason) {
  warn(observer, fmt::format("{}; using revision '{}' as the cache has it ({})", reason, request.revision,
                             cached.snapshot.commit));
  return cached.snapshot;
}

void warn_of_unknown(const ModelRequest& request, const CachedModel& cached, const Observer& observer) {
  if (!cached.choice.unknown.empty()) {
    warn(observer,
         fmt::format("model '{}': the cache does not hold {}, and does not know whether the model has them; it "
                     "is read as one that has not",
                     request.id, fmt::join(cached.choice.unknown, ", ")));
  }
}

Snapshot offline(const ModelRequest& request, const Settings& settings, const std::optional<CachedModel>& cached,
                 const Observer& observer) {
  if (cached && cached->is_usable()) {
    warn_of_unknown(request, *cached, observer);
    return cached->snapshot;
  }
  std::string lacks = fmt::format("revision '{}'", request.revision);
  if (cached) {
    const auto& list = cached->missing.empty() ? cached->choice.lacking : cached->missing;
    lacks = fmt::format("{} of revision '{}' ({})", fmt::join(list, ", "), request.revision, cached->snapshot.commit);
  }
  throw UserError(
      fmt::format("model '{}': there is no directory of this name, the cache '{}' lacks {}, and {} forbids "
                  "to download",
                  request.id, settings.cache_directory, lacks, settings.offline_variable));
}

// Downloads the files of a commit that the cache lacks.
class Fetch : public FileSource {
 public:
  Fetch(Repository& repository, const RepoCache& cache, const Listing& listing, const Observer& observer)
      : repository_(repository), cache_(cache), listing_(listing), observer_(observer) {
    progress_.commit = listing.commit;
  }

  Presence presence(const std::string& file) override {
    return listing_.files.contains(file) ? Presence::kElsewhere : Presence::kAbsent;
  }

  std::optional<std::string> open(const std::string& file) override {
    if (!is_cached(file)) {
      plan({file});
      bring(file);
    }
    return cache_.snapshot_file(listing_.commit, file);
  }

  void bring_all(const std::vector<std::string>& files) {
    std::vector<std::string> missing;
    for (const std::string& file : files) {
      if (!is_cached(file)) {
        missing.push_back(file);
      }
    }
    plan(missing);
    for (const std::string& file : missing) {
      bring(file);
    }
    progress_.file.clear();
    if (progress_.files > 0) {
      tell(0);
    }
  }

 private:
  std::optional<std::int64_t> listed_size(const std::string& file) const {
    const auto found = listing_.files.find(file);
    return found == listing_.files.end() ? std::nullopt : found->second;
  }

  // A file of another size than the listing says is damaged.
  bool is_cached(const std::string& file) const {
    const std::string path = cache_.snapshot_file(listing_.commit, file);
    std::error_code error;
    if (!fs::is_regular_file(path, error)) {
      return false;
    }
    const auto size = listed_size(file);
    return !size || fs::file_size(path, error) == static_cast<std::uintmax_t>(*size);
  }

  void plan(const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      ++progress_.files;
      progress_.total_bytes += listed_size(file).value_or(0);
    }
  }

  void bring(const std::string& file) {
    WantedFile wanted{listing_.commit, file, repository_.look_up(listing_.commit, file)};
    progress_.total_bytes += wanted.metadata.size_bytes - listed_size(file).value_or(0);
    progress_.file = file;
    const std::int64_t before = progress_.received_bytes;
    tell(0);
    const bool is_new = bring_blob(repository_, cache_, wanted, [this](std::int64_t bytes) { tell(bytes); });
    cache_.place(wanted.metadata.etag, listing_.commit, file, is_new);
    ++progress_.files_done;
    progress_.received_bytes = before + wanted.metadata.size_bytes;
  }

  void tell(std::int64_t bytes) {
    progress_.received_bytes += bytes;
    if (observer_.on_progress) {
      observer_.on_progress(progress_);
    }
  }

  Repository& repository_;
  const RepoCache& cache_;
  const Listing& listing_;
  const Observer& observer_;
  Progress progress_;
};

void check_choice(const ModelRequest& request, const Listing& listing, const FileChoice& choice) {
  if (!choice.pickles.empty()) {
    throw UserError(
        fmt::format("model '{}': its weights are only in {}, a pickle, which stft does not read; convert it to "
                    "safetensors, or ask the model's owner to",
                    request.id, fmt::join(choice.pickles, ", ")));
  }
  if (!choice.lacking.empty()) {
    std::vector<std::string> names;
    for (const auto& [name, size] : listing.files) {
      names.push_back(name);
    }
    constexpr std::size_t kMostShown = 12;
    const std::size_t shown = std::min(names.size(), kMostShown);
    const std::string more = names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "";
    throw UserError(fmt::format("model '{}': revision '{}' has no {}; it has {}{}", request.id, request.revision,
                                fmt::join(choice.lacking, ", no "),
                                fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                                names.empty() ? "no file" : more));
  }
}

Snapshot download(const ModelRequest& request, Repository& repository, const RepoCache& cache, const Listing& listing,
                  const Observer& observer) {
  Fetch fetch(repository, cache, listing, observer);
  const FileChoice choice = choose_files(fetch, request.wanted);
  check_choice(request, listing, choice);
  fetch.bring_all(choice.needed);
  for (const std::string& file : choice.absent) {
    cache.remember_absence(listing.commit, file);
  }
  try {
    cache.remember_revision(request.revision, listing.commit);
  } catch (const SystemError& failure) {
    // The files are there, and a cache that cannot be written may still be read.
    warn(observer, failure.what());
  }
  return {cache.snapshot(listing.commit), listing.commit};
}

}  // namespace

Snapshot fetch_model(const ModelRequest& request, const Settings& settings, const Observer& observer) {
  const RepoCache cache(settings, request.id);
  const auto cached = look_into(cache, request);
  if (cached && cached->is_whole() && is_commit_hash(request.revision)) {
    return cached->snapshot;
  }
  if (settings.is_offline()) {
    return offline(request, settings, cached, observer);
  }
  const bool has_copy = cached && cached->is_usable();
  HttpClient client(observer.should_stop);
  Repository repository(client, settings, request.id);
  std::string reason;
  try {
    const Listing listing = repository.list(request.revision, has_copy ? 1 : settings.attempts);
    return download(request, repository, cache, listing, observer);
  } catch (const HubUnreachable& failure) {
    reason = failure.what();
    if (!has_copy) {
      throw;
    }
  } catch (const AccessRefused& refusal) {
    reason = refusal.what();
    if (!has_copy) {
      throw;
    }
  }
  warn_of_unknown(request, *cached, observer);
  return use_cached(request, *cached, observer, reason);
}

std::optional<Snapshot> find_model(const ModelRequest& request, const Settings& settings) {
  const auto cached = look_into(RepoCache(settings, request.id), request);
  return cached && cached->is_whole() ? std::optional(cached->snapshot) : std::nullopt;
}

}  // namespace stft::hub
