// A recipe file that lives as long as the object.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace stft::recipe {

class TemporaryRecipe {
 public:
  explicit TemporaryRecipe(const std::string& text) {
    std::string pattern = (std::filesystem::temp_directory_path() / "stft-recipe-XXXXXX").string();
    const int descriptor = mkstemp(pattern.data());
    if (descriptor >= 0) {
      close(descriptor);
    }
    path_ = pattern;
    std::ofstream(path_) << text;
  }
  ~TemporaryRecipe() { std::remove(path_.c_str()); }
  TemporaryRecipe(const TemporaryRecipe&) = delete;
  TemporaryRecipe& operator=(const TemporaryRecipe&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The smallest recipe that loads; more blocks can be put after it.
inline std::string small_recipe() {
  return R"(run: {output_dir: runs/test}
model: {name_or_path: test/bad_recipes/data/model}
data:
  train:
    path: test/bad_recipes/data/train.jsonl
    columns: {anchor: anchor, positive: positive}
loss: {type: MultipleNegativesRankingLoss}
)";
}

}  // namespace stft::recipe
