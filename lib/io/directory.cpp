#include "io/directory.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace stft::io {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void throw_code(const char* operation, const fs::path& path, const std::error_code& error) {
  throw SystemError(std::string(operation) + " '" + path.string() + "': " + error.message());
}

void sync_path(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    throw_errno("open", path.string(), errno);
  }
  const int result = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  // Some file systems cannot sync a directory and say EINVAL; a rename stands all the same.
  if (result != 0 && error != EINVAL) {
    throw_errno("fsync", path.string(), error);
  }
}

fs::path parent_of(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

void rename_path(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) {
    throw_code("renaming to", to, error);
  }
}

// Links are not followed: a link that leads nowhere is there.
bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

fs::path with_suffix(const fs::path& path, const char* suffix) {
  fs::path result = path;
  result += suffix;
  return result;
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) {
    throw_code("removing", path, error);
  }
}

}  // namespace

void make_directories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw_code("creating directory", path, error);
  }
}

void replace_directory(const std::string& from, const std::string& to) {
  const fs::path old = with_suffix(to, ".old");
  remove_tree(old);
  if (!is_there(to)) {
    rename_path(from, to);
  } else if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    rename_path(from, old);
  } else if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) {
    rename_path(to, old);
    std::error_code error;
    fs::rename(from, to, error);
    if (error) {
      rename_path(old, to);
      throw_code("renaming to", to, error);
    }
  } else {
    throw_errno("exchanging", to, errno);
  }
  sync_path(parent_of(to));
  remove_tree(old);
}

bool recover_directory(const std::string& path) {
  const fs::path old = with_suffix(path, ".old");
  if (!is_there(old) || is_there(path)) {
    return false;
  }
  rename_path(old, path);
  return true;
}

void remove_directory(const std::string& path) {
  if (!is_there(path)) {
    return;
  }
  const fs::path aside = with_suffix(path, ".removed");
  remove_tree(aside);
  rename_path(path, aside);
  remove_tree(aside);
}

std::vector<std::string> directory_entries(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto it = fs::directory_iterator(path, error); !error && it != fs::end(it); it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw_code("reading directory", path, error);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> files_below(const std::string& path) {
  std::vector<std::string> files;
  std::error_code error;
  for (auto it = fs::recursive_directory_iterator(path, error); !error && it != fs::end(it); it.increment(error)) {
    if (it->is_regular_file()) {
      files.push_back(it->path().lexically_relative(path).string());
    }
  }
  if (error) {
    throw_code("reading directory", path, error);
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool is_directory(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

DirectoryLock::DirectoryLock(const std::string& path, double patience_s) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0) {
    throw_errno("open", path, errno);
  }
  const double give_up = monotonic_seconds() + patience_s;
  while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    if (monotonic_seconds() > give_up) {
      ::close(descriptor_);
      throw UserError("'" + path + "' is in use by another process of stft");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

DirectoryLock::~DirectoryLock() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

DirectoryLock::DirectoryLock(DirectoryLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

void make_durable(const std::string& path) {
  std::error_code error;
  for (auto it = fs::recursive_directory_iterator(path, error); !error && it != fs::end(it); it.increment(error)) {
    if (it->is_directory() || it->is_regular_file()) {
      sync_path(it->path());
    }
  }
  if (error) {
    throw_code("reading directory", path, error);
  }
  sync_path(path);
}

}  // namespace stft::io
