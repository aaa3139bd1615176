#include "hub/cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <system_error>

#include "base/error.h"
#include "hub/hub_config.h"
#include "io/directory.h"
#include "io/file.h"
#include "io/json.h"

namespace stft::hub {
namespace {

namespace fs = std::filesystem;

// The first line is what the standard for such tags asks for.
constexpr const char* kCacheTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This directory holds downloads, which can be had again. See https://bford.info/cachedir/\n";

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::string folder_name(const std::string& repo_id) {
  const std::size_t slash = repo_id.find('/');
  return "models--" +
         (slash == std::string::npos ? repo_id : repo_id.substr(0, slash) + "--" + repo_id.substr(slash + 1));
}

[[noreturn]] void throw_code(const char* operation, const fs::path& path, const std::error_code& error) {
  throw SystemError(fmt::format("{} '{}': {}", operation, path.string(), error.message()));
}

// A name beside `path` that nobody else uses: process ids repeat between containers that share a cache.
std::string own_name(const std::string& path) {
  std::random_device random;
  return fmt::format("{}.{:08x}{:08x}.tmp", path, random(), random());
}

void rename_to(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) {
    std::error_code ignored;
    fs::remove(from, ignored);
    throw_code("renaming to", to, error);
  }
}

}  // namespace

RepoCache::RepoCache(const Settings& settings, const std::string& repo_id)
    : root_(settings.cache_directory),
      directory_((fs::path(root_) / folder_name(repo_id)).string()),
      lock_directory_((fs::path(root_) / ".locks" / folder_name(repo_id)).string()),
      uses_links_(settings.uses_links) {}

std::optional<std::string> RepoCache::commit_of(const std::string& revision) const {
  if (is_commit_hash(revision)) {
    return revision;
  }
  const std::string path = (fs::path(directory_) / "refs" / revision).string();
  if (!is_file(path)) {
    return std::nullopt;
  }
  std::string commit = io::read_text_file(path);
  while (!commit.empty() && (commit.back() == '\n' || commit.back() == '\r' || commit.back() == ' ')) {
    commit.pop_back();
  }
  return is_commit_hash(commit) ? std::optional(commit) : std::nullopt;
}

void RepoCache::remember_revision(const std::string& revision, const std::string& commit) const {
  if (revision == commit || commit_of(revision) == commit) {
    return;
  }
  const std::string path = (fs::path(directory_) / "refs" / revision).string();
  io::make_directories(fs::path(path).parent_path().string());
  const std::string temporary = own_name(path);
  io::write_file(temporary, commit);
  rename_to(temporary, path);
}

std::string RepoCache::snapshot(const std::string& commit) const {
  return (fs::path(directory_) / "snapshots" / commit).string();
}

std::string RepoCache::snapshot_file(const std::string& commit, const std::string& file) const {
  STFT_CHECK(is_relative_path(file), file);
  return (fs::path(snapshot(commit)) / file).string();
}

std::optional<std::set<std::string>> RepoCache::listed(const std::string& commit) const {
  const std::string path = (fs::path(directory_) / "trees" / (commit + ".json")).string();
  if (!is_file(path)) {
    return std::nullopt;
  }
  const io::JsonResult parsed = io::try_parse_json(io::read_text_file(path));
  const auto& json = parsed.value;
  if (parsed.failure || !json.is_object() || json.value("format_version", io::Json()) != 1 || !json.contains("files") ||
      !json["files"].is_object()) {
    return std::nullopt;
  }
  std::set<std::string> names;
  for (const auto& entry : json["files"].items()) {
    names.insert(entry.key());
  }
  return names;
}

Presence RepoCache::presence(const std::string& commit, const std::string& file) const {
  if (is_file(snapshot_file(commit, file))) {
    return Presence::kCached;
  }
  if (is_file((fs::path(directory_) / ".no_exist" / commit / file).string())) {
    return Presence::kAbsent;
  }
  if (const auto names = listed(commit)) {
    return names->contains(file) ? Presence::kElsewhere : Presence::kAbsent;
  }
  return Presence::kUnknown;
}

void RepoCache::remember_absence(const std::string& commit, const std::string& file) const {
  const fs::path path = fs::path(directory_) / ".no_exist" / commit / file;
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor >= 0) {
    ::close(descriptor);
  }
}

std::string RepoCache::blob(const std::string& etag) const {
  return (fs::path(directory_) / "blobs" / etag).string();
}

std::string RepoCache::incomplete_blob(const std::string& etag) const {
  return blob(etag) + ".incomplete";
}

std::string RepoCache::lock(const std::string& etag) const {
  return (fs::path(lock_directory_) / (etag + ".lock")).string();
}

std::string RepoCache::blob_state(const std::string& etag) const {
  std::string state;
  std::error_code error;
  for (auto it = fs::directory_iterator(fs::path(directory_) / "blobs", error); !error && it != fs::end(it);
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    struct stat found {};
    if (name.starts_with(etag) && ::stat(it->path().c_str(), &found) == 0) {
      state += fmt::format("{} {} {}.{}\n", name, found.st_size, found.st_mtim.tv_sec, found.st_mtim.tv_nsec);
    }
  }
  return state;
}

void RepoCache::place(const std::string& etag, const std::string& commit, const std::string& file, bool is_new) const {
  const fs::path path(snapshot_file(commit, file));
  io::make_directories(path.parent_path().string());
  const std::string temporary = own_name(path.string());
  std::error_code error;
  if (uses_links_) {
    const fs::path target = fs::path(blob(etag)).lexically_relative(path.parent_path());
    if (::symlink(target.c_str(), temporary.c_str()) == 0) {
      rename_to(temporary, path.string());
      return;
    }
    // Some file systems have no links.
    if (errno != EPERM && errno != ENOTSUP && errno != ENOSYS) {
      throw_errno("linking", path.string(), errno);
    }
  }
  if (is_new) {
    rename_to(blob(etag), path.string());
    return;
  }
  fs::copy_file(blob(etag), temporary, fs::copy_options::overwrite_existing, error);
  if (error) {
    throw_code("copying to", temporary, error);
  }
  rename_to(temporary, path.string());
}

void RepoCache::prepare() const {
  io::make_directories((fs::path(directory_) / "blobs").string());
  const std::string tag = (fs::path(root_) / "CACHEDIR.TAG").string();
  if (!is_file(tag)) {
    try {
      io::write_file(tag, kCacheTag);
    } catch (const SystemError&) {
      // The tag is a courtesy.
    }
  }
}

}  // namespace stft::hub
