#include "eval/blocks.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace stft::eval {

Blocks::Blocks(std::vector<std::string_view> texts, int64_t size)
    : texts_(std::move(texts)), size_(size), order_(texts_.size()) {
  STFT_CHECK(size > 0, "a block holds texts");
  std::iota(order_.begin(), order_.end(), int64_t{0});
  const auto length = [&](int64_t index) { return texts_[static_cast<size_t>(index)].size(); };
  std::stable_sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) { return length(a) < length(b); });
}

std::span<const int64_t> Blocks::indices(int64_t block) const {
  const auto begin = static_cast<size_t>(block * size_);
  return std::span(order_).subspan(begin, std::min(static_cast<size_t>(size_), order_.size() - begin));
}

std::vector<std::string_view> Blocks::texts(int64_t block) const {
  std::vector<std::string_view> result;
  for (const int64_t index : indices(block)) {
    result.push_back(texts_[static_cast<size_t>(index)]);
  }
  return result;
}

}  // namespace stft::eval
