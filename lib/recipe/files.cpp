#include "recipe/files.h"

#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "hub/hub_config.h"
#include "peft/peft_config.h"

namespace stft::recipe {

namespace {

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

bool is_folder(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

}  // namespace

std::vector<std::string> matching_files(const std::string& pattern) {
  if (is_there(pattern) || pattern.find_first_of("*?[") == std::string::npos) {
    return is_there(pattern) ? std::vector<std::string>{pattern} : std::vector<std::string>();
  }
  std::vector<std::string> files;
  glob_t found{};
  if (glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0) {
    files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
  std::sort(files.begin(), files.end());
  return files;
}

std::string file_problem(const std::string& path) {
  if (is_folder(path)) {
    return "'" + path + "' is a directory, expected a file";
  }
  if (access(path.c_str(), R_OK) == 0) {
    return {};
  }
  return errno == ENOENT || errno == ENOTDIR ? "no such file '" + path + "'"
                                             : "cannot read '" + path + "': " + std::strerror(errno);
}

std::string model_directory_problem(const std::string& path) {
  const std::filesystem::path directory(path);
  if (is_folder(directory)) {
    return is_there(directory / "config.json") || is_there(directory / "modules.json") ||
                   peft::is_adapter_directory(path)
               ? std::string()
               : "'" + path + "' is no model directory: it holds neither config.json nor modules.json";
  }
  if (is_there(directory)) {
    return "'" + path + "' is a file, expected a model directory";
  }
  return "no such directory '" + path + "'";
}

bool is_hub_model(const std::string& name_or_path) {
  return hub::is_repo_id(name_or_path) && !is_there(name_or_path);
}

std::string model_problem(const std::string& name_or_path) {
  if (is_hub_model(name_or_path)) {
    return {};
  }
  const std::string problem = model_directory_problem(name_or_path);
  return problem.empty() || is_there(name_or_path)
             ? problem
             : problem + ", and it is no hub id (NAME or ORG/NAME of letters, digits, '-', '_' and '.')";
}

}  // namespace stft::recipe
