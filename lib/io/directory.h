// Whole directories: making, replacing, removing, making durable. SystemError with operation and path on failure.
#pragma once

#include <string>
#include <vector>

namespace stft::io {

// The directory and its parents; one that exists is fine.
void make_directories(const std::string& path);

// Gives the directory `from` the name `to` in one step: a reader finds the old directory or the new one, never a
// mixture. What `to` was is removed afterwards. Where the file system cannot exchange two names, `to` is moved aside
// first ("<to>.old"; recover_directory brings it back after a crash in between). Durable when it returns; when it fails
// `to` is what it was.
void replace_directory(const std::string& from, const std::string& to);

// Brings back what an interrupted replace_directory moved aside: when `path` is missing and "<path>.old" exists, it is
// renamed. Whether there was something to bring back.
bool recover_directory(const std::string& path);

// Removes a directory (or file) with its content, if it exists. It first takes the name "<path>.removed", so that a
// crash half way does not leave a part of it under its own name.
void remove_directory(const std::string& path);

// The names in a directory, in bytes order; none when it does not exist. A directory that cannot be read whole is an
// error, never a short list.
std::vector<std::string> directory_entries(const std::string& path);

// The regular files below a directory, as paths relative to it, in bytes order.
std::vector<std::string> files_below(const std::string& path);

// Whether `path` is a directory (links followed); anything that cannot be looked at is none.
bool is_directory(const std::string& path);

// A directory that this process alone works on, by an advisory lock on it that ends with the process. File systems
// without such locks give one that locks nothing.
class DirectoryLock {
 public:
  // Waits up to `patience_s` for a process that holds it (it may be dying); UserError when it still does.
  DirectoryLock(const std::string& path, double patience_s);
  ~DirectoryLock();
  DirectoryLock(DirectoryLock&& other) noexcept;
  DirectoryLock& operator=(DirectoryLock&&) = delete;
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int descriptor_ = -1;
};

// fsync of every file and folder below `path`, and of `path` itself.
void make_durable(const std::string& path);

}  // namespace stft::io
