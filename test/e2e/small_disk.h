// A file system of its own that is small, or that stops taking writes.
#pragma once

#include <cstddef>
#include <string>

namespace stft::test {

// Mounted while the object lives; this process and those that it starts see it, nobody else does.
class SmallDisk {
 public:
  // Whether this process may mount; when not, tells the test's reader that the case is skipped.
  static bool is_allowed();

  SmallDisk(std::string path, size_t bytes);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  void resize(size_t bytes);
  // Waits for a moment in which no file is open for writing.
  void make_read_only();
  void make_writable();

 private:
  void remount(unsigned long flags, const std::string& options);

  std::string path_;
};

}  // namespace stft::test
