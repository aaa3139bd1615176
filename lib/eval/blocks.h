// Texts cut into blocks of similar length.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stft::eval {

// A function of the texts and the size only: texts sorted by length in bytes, then position, and cut every `size`
// texts. Borrows the texts' bytes.
class Blocks {
 public:
  Blocks(std::vector<std::string_view> texts, int64_t size);
  Blocks(const std::vector<std::string>& texts, int64_t size)
      : Blocks(std::vector<std::string_view>(texts.begin(), texts.end()), size) {}

  int64_t count() const { return (static_cast<int64_t>(order_.size()) + size_ - 1) / size_; }
  std::span<const int64_t> indices(int64_t block) const;  // positions of the block's texts
  std::vector<std::string_view> texts(int64_t block) const;

 private:
  std::vector<std::string_view> texts_;
  int64_t size_;
  std::vector<int64_t> order_;
};

}  // namespace stft::eval
