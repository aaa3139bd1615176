// A data set's texts, bound to their roles by column name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/data_config.h"

namespace stft::data {

// Rows of (anchor, positive, 0 to n negatives) in file order, files in the order of the configuration. The texts lie in
// one block of bytes, so that millions of rows cost their text plus about 8 bytes a cell. Immutable; views live as long
// as the data set.
class Dataset {
 public:
  // Reads every row (at most config.limit) of every file. Texts may be empty. Roles:
  // - anchor, positive: string columns, required;
  // - negative: a string column or a list of strings, of any length, row by row;
  // - negative_1, ...: string columns; an explicit null means that the row lacks this one.
  // UserError naming path:line and column when a mapped column is missing, null or has another type; naming
  // config.source when anchor or positive is not mapped, or there is no row; errors of io::expand_paths and
  // io::TextTable.
  static Dataset load(const DatasetConfig& config);

  std::int64_t size() const { return static_cast<std::int64_t>(first_cell_.size()) - 1; }  // rows
  std::string_view anchor(std::int64_t row) const { return cell(row, 0); }
  std::string_view positive(std::int64_t row) const { return cell(row, 1); }
  std::int64_t negatives(std::int64_t row) const { return cells(row) - 2; }
  std::string_view negative(std::int64_t row, std::int64_t i) const;  // i < negatives(row)
  // Which of the mapped columns it came from: the i of negative_i, less one; i itself for a list or a single column.
  std::int64_t negative_column(std::int64_t row, std::int64_t i) const;
  std::int64_t max_negatives() const { return max_negatives_; }  // of any row

  // Columns that the files have and the configuration does not map, in bytes order.
  const std::vector<std::string>& ignored_columns() const { return ignored_columns_; }
  const std::string& name() const { return name_; }  // config.name, else the first file's stem

 private:
  friend class DatasetReader;

  Dataset() = default;
  std::int64_t cells(std::int64_t row) const;
  std::string_view cell(std::int64_t row, std::int64_t i) const;

  std::string name_;
  std::string arena_;                           // all texts, one after another
  std::vector<std::uint64_t> cell_begin_{0};    // cell -> its start in arena_; one more at the end
  std::vector<std::uint64_t> first_cell_{0};    // row -> its first cell (the anchor's); one more at the end
  std::vector<std::uint16_t> negative_column_;  // of every numbered negative, in cell order; empty: none is numbered
  std::int64_t max_negatives_ = 0;
  std::vector<std::string> ignored_columns_;
};

}  // namespace stft::data
