// The files that a recipe names. Relative paths are relative to the current directory.
#pragma once

#include <string>
#include <vector>

namespace stft::recipe {

// A file of this name, else what it matches as a glob pattern (*, ?, [...]), in byte order; empty when nothing does.
std::vector<std::string> matching_files(const std::string& pattern);

// Why `path` cannot be read as a file ("no such file 'x'"); empty when it can.
std::string file_problem(const std::string& path);

// Whether `name_or_path` is a model of a hub: it has the form of an id, and nothing of this name lies here.
bool is_hub_model(const std::string& name_or_path);

// Why `path` is no model directory; empty when it is one (config.json or modules.json in it).
std::string model_directory_problem(const std::string& path);

// Why it is neither a model directory nor the id of a model; empty when it is one of them. What is not asked of a hub
// here: whether it has the model.
std::string model_problem(const std::string& name_or_path);

}  // namespace stft::recipe
