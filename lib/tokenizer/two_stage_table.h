// A value for every code point, in two stages: the numbers of pages, and the distinct pages.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace stft::tokenizer {

class TwoStageTable {
 public:
  static constexpr std::size_t kCodePoints = 0x110000;

  // `flat` has kCodePoints values.
  explicit TwoStageTable(const std::vector<std::uint16_t>& flat) {
    for (std::size_t page = 0; page < kPageCount; ++page) {
      Page content{};
      std::copy_n(flat.begin() + static_cast<std::ptrdiff_t>(page * kPageSize), kPageSize, content.begin());
      const auto known = std::find(pages_.begin(), pages_.end(), content);
      page_of_[page] = static_cast<std::uint16_t>(known - pages_.begin());
      if (known == pages_.end()) {
        pages_.push_back(content);
      }
    }
  }

  // 0 above U+10FFFF.
  std::uint16_t operator[](char32_t c) const {
    return c < kCodePoints ? pages_[page_of_[c / kPageSize]][c % kPageSize] : std::uint16_t{0};
  }

 private:
  static constexpr std::size_t kPageSize = 256;
  static constexpr std::size_t kPageCount = kCodePoints / kPageSize;
  using Page = std::array<std::uint16_t, kPageSize>;

  std::array<std::uint16_t, kPageCount> page_of_{};
  std::vector<Page> pages_;
};

}  // namespace stft::tokenizer
