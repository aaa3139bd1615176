// Texts cut into the blocks that are embedded together.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stft::eval {

// Blocks of similar length: texts by length, then position. A function of the texts and the size only, so a block is
// the same computation whichever rank does it. Borrows the texts.
class TextBlocks {
 public:
  TextBlocks(std::vector<std::string_view> texts, int64_t size);
  TextBlocks(const std::vector<std::string>& texts, int64_t size)
      : TextBlocks(std::vector<std::string_view>(texts.begin(), texts.end()), size) {}

  int64_t count() const;
  // Positions among the texts.
  std::span<const int64_t> indices(int64_t block) const;
  std::vector<std::string_view> texts(int64_t block) const;

 private:
  std::vector<std::string_view> texts_;
  int64_t size_;
  std::vector<int64_t> order_;
};

}  // namespace stft::eval
