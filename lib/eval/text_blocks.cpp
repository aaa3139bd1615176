#include "eval/text_blocks.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace stft::eval {

TextBlocks::TextBlocks(std::vector<std::string_view> texts, int64_t size)
    : texts_(std::move(texts)), size_(size), order_(texts_.size()) {
  std::iota(order_.begin(), order_.end(), int64_t{0});
  std::stable_sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) {
    return texts_[static_cast<size_t>(a)].size() < texts_[static_cast<size_t>(b)].size();
  });
}

int64_t TextBlocks::count() const {
  return (static_cast<int64_t>(order_.size()) + size_ - 1) / size_;
}

std::span<const int64_t> TextBlocks::indices(int64_t block) const {
  const auto begin = static_cast<size_t>(block * size_);
  return std::span(order_).subspan(begin, std::min(static_cast<size_t>(size_), order_.size() - begin));
}

std::vector<std::string_view> TextBlocks::texts(int64_t block) const {
  std::vector<std::string_view> result;
  for (const int64_t index : indices(block)) {
    result.push_back(texts_[static_cast<size_t>(index)]);
  }
  return result;
}

}  // namespace stft::eval
