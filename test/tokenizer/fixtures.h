// Where the tokenizer tests find their files.
#pragma once

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace stft::tokenizer::test {

inline std::string model_directory() {
  return std::string(STFT_SOURCE_DIR) + "/.deps/models/all-MiniLM-L6-v2";
}

inline std::string golden(const std::string& name) {
  return std::string(STFT_SOURCE_DIR) + "/test/golden/tokenizer/" + name;
}

// The lines of a file without their newlines.
inline std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error("cannot open " + path);
  }
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  return lines;
}

inline std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error("cannot open " + path);
  }
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

// `part` again and again, at least so many bytes.
inline std::string repeated(const std::string& part, std::size_t bytes) {
  std::string text;
  text.reserve(bytes + part.size());
  while (text.size() < bytes) {
    text += part;
  }
  return text;
}

}  // namespace stft::tokenizer::test
