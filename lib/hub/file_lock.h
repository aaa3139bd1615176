// A lock file as Python's filelock makes it, so that processes of both kinds keep out of each other's way.
#pragma once

#include <functional>
#include <string>

namespace stft::hub {

// Held until destroyed, or until the process ends. File systems without locks give one that locks nothing: whoever
// relies on it must stay right without it.
class FileLock {
 public:
  // How to wait for another process. `wait` is called with seconds to sleep and may throw; `has_moved` says whether the
  // holder has got anywhere since it was asked last.
  struct Patience {
    std::function<void(double)> wait;
    std::function<bool()> has_moved;
    double seconds = 60;  // without a move
  };

  // SystemError when the file cannot be made, or when its holder does not move for as long as `patience` says.
  FileLock(const std::string& path, const Patience& patience);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  bool try_lock(const std::string& path);

  int descriptor_ = -1;
};

}  // namespace stft::hub
