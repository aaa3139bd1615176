// Whole directories: making, replacing, removing, making durable. SystemError with operation and path on failure.
#pragma once

#include <string>

namespace stft::io {

// The directory and its parents; one that exists is fine.
void make_directories(const std::string& path);

// Gives the directory `from` the name `to` in one step: a reader finds the old directory or the new one, never a
// mixture. What `to` was is removed afterwards. Where the file system cannot exchange two names, `to` is moved aside
// first ("<to>.old"; recover_directory brings it back after a crash in between). Durable when it returns.
void replace_directory(const std::string& from, const std::string& to);

// Brings back what an interrupted replace_directory moved aside: when `path` is missing and "<path>.old" exists, it is
// renamed. Whether there was something to bring back.
bool recover_directory(const std::string& path);

// Removes a directory (or file) with its content, if it exists. It first takes the name "<path>.removed", so that a
// crash half way does not leave a part of it under its own name.
void remove_directory(const std::string& path);

// fsync of every file and folder below `path`, and of `path` itself.
void make_durable(const std::string& path);

}  // namespace stft::io
