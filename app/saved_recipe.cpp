#include "saved_recipe.h"

#include <filesystem>

#include "checkpoint/manifest.h"

namespace stft::app {

namespace fs = std::filesystem;

std::optional<std::string> saved_recipe(const std::string& model) {
  const fs::path directory = fs::absolute(model).lexically_normal();
  const fs::path parent = (directory.has_filename() ? directory : directory.parent_path()).parent_path();
  for (const fs::path& folder : {directory, parent}) {
    const fs::path path = folder / checkpoint::kRecipeFile;
    if (fs::exists(path)) {
      return path.string();
    }
  }
  return std::nullopt;
}

}  // namespace stft::app
