// A directory for one tokenizer, gone at the end of the test.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

namespace stft::tokenizer::test {

class ModelDirectory {
 public:
  ModelDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "stft_tokenizer_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error("cannot make " + name);
    }
    path_ = name;
  }
  ~ModelDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ModelDirectory(const ModelDirectory&) = delete;
  ModelDirectory& operator=(const ModelDirectory&) = delete;

  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// What loading a directory says when it fails.
inline std::string message_of(const std::string& directory) {
  try {
    Tokenizer::load(directory);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no UserError";
}

}  // namespace stft::tokenizer::test
