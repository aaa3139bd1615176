#include "train/tokenizer_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <vector>

#include "base/log.h"

namespace stft::train {
namespace {

constexpr const char* kSample = "Hello, world!";
constexpr std::size_t kShownIds = 4;  // at each end

}  // namespace

std::string tokenizer_line(const tokenizer::Tokenizer& tokenizer) {
  const std::vector<std::int32_t> ids = tokenizer.encode_ids(kSample, 0);
  const std::vector<std::int32_t> first(ids.begin(), ids.size() > 2 * kShownIds ? ids.begin() + kShownIds : ids.end());
  const std::vector<std::int32_t> last(
      ids.begin() + static_cast<std::ptrdiff_t>(first.size()) +
          (ids.size() > 2 * kShownIds ? static_cast<std::ptrdiff_t>(ids.size() - 2 * kShownIds) : 0),
      ids.end());
  return fmt::format("tokenizer {}; '{}' becomes {}{}{}", tokenizer::describe(tokenizer.policy()), kSample,
                     fmt::join(first, " "), last.empty() ? "" : " ... ", fmt::join(last, " "));
}

void tell_about_tokenizer(const tokenizer::Tokenizer& tokenizer) {
  for (const std::string& warning : tokenizer.policy().warnings) {
    log::warn(warning);
  }
  log::info(tokenizer_line(tokenizer));
}

Fact tokenizer_fact(const tokenizer::Tokenizer& tokenizer) {
  std::vector<std::string> names;
  std::string directory;
  for (const std::string& path : tokenizer.policy().files) {
    directory = std::filesystem::path(path).parent_path().string();
    names.push_back(std::filesystem::path(path).filename().string());
  }
  return file_fact("tokenizer", directory, names);
}

}  // namespace stft::train
