// The texts of one file, in order.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"

namespace stft::data {

// The lines of a text file stay where the file is mapped; a table's cells are copied once. Views live as long as the
// list.
class TextList {
 public:
  // Without a column: exactly the bytes between newlines; a blank line is a text, carriage returns and a byte order
  // mark belong to it, the last text needs no newline, an empty file has no text. With a column: its cells, as
  // io::TextTable reads them. UserError: errors of io::MappedFile and io::TextTable; a text that is not UTF-8, a cell
  // that is missing or no string ("path:line: ..."); a table without a column.
  static TextList load(const std::string& path, const std::optional<std::string>& column);

  std::span<const std::string_view> texts() const { return texts_; }

 private:
  TextList() = default;
  void read_lines(const std::string& path);
  void read_column(const std::string& path, const std::string& column);

  std::optional<io::MappedFile> file_;
  std::unique_ptr<std::string> cells_;  // one after another; its bytes stay when the list moves
  std::vector<std::string_view> texts_;
};

}  // namespace stft::data
