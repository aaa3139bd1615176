// A data set's texts and scores, bound to their roles by column name.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/data_config.h"

namespace stft::data {

// The roles that a row's first two texts have: text_1 and text_2 when one of them is mapped, else anchor and positive.
std::array<std::string, 2> text_roles(const ColumnMap& columns);

// Rows of two texts, 0 to n negatives and, where mapped, a score, in file order, files in the order of the
// configuration. The texts lie in one block of bytes, so that millions of rows cost their text plus about 8 bytes a
// cell. Immutable; views live as long as the data set.
class Dataset {
 public:
  static constexpr std::int64_t kColumns = 2;  // texts that every row has

  // Reads every row (at most config.limit) of every file. Texts may be empty. Roles:
  // - anchor, positive, or text_1, text_2: string columns; a pair of them is required;
  // - negative, beside anchor: a string column or a list of strings, of any length, row by row;
  // - negative_1, ...: string columns; an explicit null means that the row lacks this one;
  // - score: a finite number, or a string that is one (csv and tsv have nothing else).
  // UserError naming path:line and column when a mapped column is missing, null or has another type; naming
  // config.source when the pair is not mapped, or there is no row; errors of io::expand_paths and io::TextTable.
  static Dataset load(const DatasetConfig& config);

  std::int64_t size() const { return static_cast<std::int64_t>(first_cell_.size()) - 1; }  // rows
  // Columns 0 and 1 are anchor and positive, or text_1 and text_2; the row's negatives follow.
  std::string_view text(std::int64_t row, std::int64_t column) const;  // column < texts(row)
  std::int64_t texts(std::int64_t row) const;
  std::int64_t negatives(std::int64_t row) const { return texts(row) - kColumns; }
  // Which of the mapped columns it came from: the i of negative_i, less one; i itself for a list or a single column.
  std::int64_t negative_column(std::int64_t row, std::int64_t i) const;
  std::int64_t max_negatives() const { return max_negatives_; }  // of any row

  bool has_scores() const { return !scores_.empty(); }
  float score(std::int64_t row) const { return scores_.at(static_cast<std::size_t>(row)); }

  // Columns that the files have and the configuration does not map, in bytes order.
  const std::vector<std::string>& ignored_columns() const { return ignored_columns_; }
  // A check-sum of all rows: equal data sets have equal ones, whatever files they come from.
  std::string fingerprint() const;
  const std::string& name() const { return name_; }  // config.name, else the first file's stem

 private:
  friend class DatasetReader;

  Dataset() = default;

  std::string name_;
  std::string arena_;                           // all texts, one after another
  std::vector<std::uint64_t> cell_begin_{0};    // cell -> its start in arena_; one more at the end
  std::vector<std::uint64_t> first_cell_{0};    // row -> its first cell; one more at the end
  std::vector<std::uint16_t> negative_column_;  // of every numbered negative, in cell order; empty: none is numbered
  std::vector<float> scores_;                   // row -> its score; empty: not mapped
  std::int64_t max_negatives_ = 0;
  std::vector<std::string> ignored_columns_;
};

}  // namespace stft::data
