#include "e2e/small_disk.h"

#include <sched.h>
#include <sys/mount.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

namespace stft::test {
namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::string size_option(size_t bytes) {
  return "size=" + std::to_string(bytes);
}

}  // namespace

bool SmallDisk::is_allowed() {
  static const bool has_own_mounts =
      ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  if (!has_own_mounts) {
    WARN("skipped: mounting a small file system needs root (CAP_SYS_ADMIN)");
  }
  return has_own_mounts;
}

SmallDisk::SmallDisk(std::string path, size_t bytes) : path_(std::move(path)) {
  std::filesystem::create_directories(path_);
  if (::mount("small-disk", path_.c_str(), "tmpfs", 0, size_option(bytes).c_str()) != 0) {
    fail("mounting a tmpfs");
  }
}

SmallDisk::~SmallDisk() {
  ::umount2(path_.c_str(), MNT_DETACH);
}

void SmallDisk::resize(size_t bytes) {
  remount(0, size_option(bytes));
}

void SmallDisk::make_read_only() {
  remount(MS_RDONLY, "");
}

void SmallDisk::make_writable() {
  remount(0, "");
}

void SmallDisk::remount(unsigned long flags, const std::string& options) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (::mount(nullptr, path_.c_str(), nullptr, MS_REMOUNT | flags, options.c_str()) != 0) {
    if (errno != EBUSY || std::chrono::steady_clock::now() > deadline) {
      fail("remounting");
    }
  }
}

}  // namespace stft::test
