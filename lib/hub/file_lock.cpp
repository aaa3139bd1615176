#include "hub/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "io/directory.h"

namespace stft::hub {

// False: another process holds it. The holder may remove the file when it lets go, so the one that was locked must
// still be the one of that name.
bool FileLock::try_lock(const std::string& path) {
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
  if (descriptor_ < 0) {
    throw_errno("opening", path, errno);
  }
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return true;  // no locks here
    }
  } else {
    struct stat locked {};
    struct stat named {};
    if (::fstat(descriptor_, &locked) == 0 && ::stat(path.c_str(), &named) == 0 && locked.st_ino == named.st_ino &&
        locked.st_dev == named.st_dev) {
      return true;
    }
  }
  ::close(descriptor_);
  descriptor_ = -1;
  return false;
}

FileLock::FileLock(const std::string& path, const Patience& patience) {
  io::make_directories(std::filesystem::path(path).parent_path().string());
  double last_move = monotonic_seconds();
  while (!try_lock(path)) {
    patience.wait(0.1);
    if (patience.has_moved()) {
      last_move = monotonic_seconds();
    } else if (monotonic_seconds() - last_move > patience.seconds) {
      throw SystemError(fmt::format("locking '{}': another process has held it for {:.0f} s without getting anywhere",
                                    path, patience.seconds));
    }
  }
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

}  // namespace stft::hub
