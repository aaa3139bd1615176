#include "data/text_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "io/text_table.h"
#include "io/utf8.h"

namespace stft::data {
namespace {

constexpr std::array<std::string_view, 4> kTableExtensions = {".jsonl", ".ndjson", ".csv", ".tsv"};

}  // namespace

TextList TextList::load(const std::string& path, const std::optional<std::string>& column) {
  TextList list;
  if (column) {
    list.read_column(path, *column);
    return list;
  }
  const std::string extension = std::filesystem::path(path).extension().string();
  if (std::find(kTableExtensions.begin(), kTableExtensions.end(), extension) != kTableExtensions.end()) {
    throw UserError(fmt::format("{}: a {} file needs --column, the column that holds the texts", path, extension));
  }
  list.read_lines(path);
  return list;
}

void TextList::read_lines(const std::string& path) {
  file_.emplace(path);
  std::string_view rest = file_->text();
  if (const auto offset = io::first_invalid_utf8(rest)) {
    const auto newlines = std::count(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(*offset), '\n');
    throw UserError(fmt::format("{}:{}: not valid UTF-8", path, newlines + 1));
  }
  while (!rest.empty()) {
    const std::size_t length = std::min(rest.find('\n'), rest.size());
    texts_.push_back(rest.substr(0, length));
    rest.remove_prefix(std::min(length + 1, rest.size()));
  }
}

void TextList::read_column(const std::string& path, const std::string& column) {
  io::TextTable table(path);
  cells_ = std::make_unique<std::string>();
  std::vector<std::size_t> ends;
  while (const auto record = table.next()) {
    *cells_ += io::text_cell(*record, column, path);
    ends.push_back(cells_->size());
  }
  texts_.reserve(ends.size());
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    texts_.push_back(std::string_view(*cells_).substr(begin, end - begin));
    begin = end;
  }
}

}  // namespace stft::data
