// Every file of test/bad_recipes is refused with the messages that its first lines promise, in time.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "recipe/recipe.h"

namespace stft::recipe {

namespace {

struct BadRecipe {
  std::vector<std::string> expected;
  int64_t world_size = 1;
};

BadRecipe read_promises(const std::filesystem::path& path) {
  constexpr std::string_view kExpect = "# expect: ";
  constexpr std::string_view kWorld = "# world: ";
  BadRecipe bad;
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line) && line.rfind("#", 0) == 0;) {
    if (line.rfind(kExpect, 0) == 0) {
      bad.expected.push_back(line.substr(kExpect.size()));
    } else if (line.rfind(kWorld, 0) == 0) {
      bad.world_size = std::stoll(line.substr(kWorld.size()));
    }
  }
  return bad;
}

std::string refusal(const std::string& path, int64_t world_size) {
  try {
    resolve(load(path, {}), world_size);
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("bad recipes are refused with the promised message", "[recipe]") {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator("test/bad_recipes")) {
    if (entry.path().extension() == ".yaml") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  REQUIRE(files.size() >= 30);
  for (const std::filesystem::path& file : files) {
    INFO(file);
    const BadRecipe bad = read_promises(file);
    REQUIRE_FALSE(bad.expected.empty());
    const auto begin = std::chrono::steady_clock::now();
    const std::string message = refusal(file.string(), bad.world_size);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    CHECK(seconds.count() < 5.0);
    for (const std::string& expected : bad.expected) {
      CHECK_THAT(message, Catch::Contains(expected));
    }
  }
}

TEST_CASE("a recipe that cannot be read is refused", "[recipe]") {
  CHECK(refusal("test/absent.yaml", 1) == "cannot read recipe 'test/absent.yaml': No such file or directory");
  CHECK(refusal("test/bad_recipes", 1) == "cannot read recipe 'test/bad_recipes': Is a directory");
  CHECK(refusal("/dev/zero", 1) == "cannot read recipe '/dev/zero': larger than 4 MiB");
}

}  // namespace stft::recipe
