#include "tokenizer/tokenizer_policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

namespace stft::tokenizer {
namespace {

const char* side_name(Side side) {
  return side == Side::kLeft ? "left" : "right";
}

}  // namespace

std::string describe(const TokenizerPolicy& policy) {
  std::vector<std::string> names;
  for (const std::string& path : policy.files) {
    names.push_back(std::filesystem::path(path).filename().string());
  }
  const auto length = policy.max_seq_length ? policy.max_seq_length : policy.model_max_length;
  std::string text = fmt::format("{} from {}; before a text {}, behind it {}; ", policy.tokenizer_class,
                                 fmt::join(names, ", "), listed(policy.before), listed(policy.after));
  text += length ? fmt::format("at most {} tokens", *length) : "no length limit of its own";
  text +=
      fmt::format(", cut on the {}; pads on the {}", side_name(policy.truncation_side), side_name(policy.padding_side));
  if (policy.lower_cases) {
    text += "; lower-cases";
  }
  if (policy.pad_is_end) {
    text += "; the padding token is the end token too, told apart by the mask";
  }
  return text;
}

}  // namespace stft::tokenizer
