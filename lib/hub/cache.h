// The files of one model in huggingface_hub's cache: models--org--name/{blobs,refs,snapshots,.no_exist,trees}. What
// Python wrote is read, and what is written here Python reads.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "hub/settings.h"

namespace stft::hub {

// What is known of a file of a commit without asking the hub.
enum class Presence { kCached, kElsewhere, kAbsent, kUnknown };

class RepoCache {
 public:
  RepoCache(const Settings& settings, const std::string& repo_id);

  // The commit that a branch or tag had when it was last looked up; a commit hash is itself. None when it is not there
  // or no commit.
  std::optional<std::string> commit_of(const std::string& revision) const;
  // Nothing when it is up to date; what cannot be written is told as SystemError.
  void remember_revision(const std::string& revision, const std::string& commit) const;

  std::string snapshot(const std::string& commit) const;
  // `file` is a path as is_relative_path judges it.
  std::string snapshot_file(const std::string& commit, const std::string& file) const;
  Presence presence(const std::string& commit, const std::string& file) const;
  void remember_absence(const std::string& commit, const std::string& file) const;  // best effort

  std::string blob(const std::string& etag) const;
  std::string incomplete_blob(const std::string& etag) const;
  std::string lock(const std::string& etag) const;
  // Bytes of this blob that any process has brought so far, and when: changes while one is at work.
  std::string blob_state(const std::string& etag) const;

  // Gives the blob its name in the snapshot: a relative link, or the file itself where links are not used or cannot be
  // made (`is_new`: moved, else copied). SystemError when neither works.
  void place(const std::string& etag, const std::string& commit, const std::string& file, bool is_new) const;

  // Makes the folder of blobs, and tells backup programs that all of it can be had again.
  void prepare() const;

  const std::string& directory() const { return directory_; }

 private:
  // The names that huggingface_hub's listing of that commit has, if it left one.
  std::optional<std::set<std::string>> listed(const std::string& commit) const;

  std::string root_;
  std::string directory_;
  std::string lock_directory_;
  bool uses_links_;
};

}  // namespace stft::hub
